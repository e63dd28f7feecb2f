"""What lets programs that were written for another client run on kbatch."""
