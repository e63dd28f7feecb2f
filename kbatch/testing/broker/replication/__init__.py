"""The replicas of the embedded cluster: what leaders and followers do between the controller's decisions."""
