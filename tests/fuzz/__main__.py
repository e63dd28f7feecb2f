"""Play a block of a campaign and print its tally: `python -m tests.fuzz MODULE BLOCK CASES`."""

import json
import sys

from tests.fuzz import campaign

if __name__ == "__main__":
    module, block, cases = sys.argv[1:]
    print(json.dumps(campaign.run_block(module, int(block), int(cases))))
