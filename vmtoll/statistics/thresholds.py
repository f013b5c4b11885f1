"""The limits that judgements rest on, each in one place. Shares and probabilities are fractions."""

ALPHA = 0.05  # wrong verdicts of a page
CONFIDENCE = 0.95
POWER = 0.8  # of a plan, and of a detectable difference
PRIMARY_SHARE = 0.5  # of ALPHA, for the primary metrics of a page
MARGIN = 0.02  # what is planned for where no margin of equivalence applies

# Fewest units for a difference, and for equivalence. Three boots are three draws of where pages and interrupts lie; of
# fewer than five test beds one odd host decides.
MIN_BLOCKS, MIN_EQUIVALENT_BLOCKS = 3, 6
MIN_BOOTS, MIN_EQUIVALENT_BOOTS = 3, 4
MIN_TEST_BEDS = 5
MAX_BLOCKS = 1000  # where the search for "how many more blocks" gives up

SPREAD_FLOOR = 0.002  # of log ratios: blocks that agree better than to 0.2% are no surer than that
SKEWED = 0.01  # how often normal blocks may look skewed

# The rule of every block: each must show a difference beyond this factor, or beyond what A/A trials differ by.
EVERY_BLOCK_FACTOR = 2.0
FEW_EVERY_BLOCKS, ENOUGH_EVERY_BLOCKS = 4, 6
FACTOR_OF_FEW = 4.0
UNKNOWN_NOISE = 4.0  # the largest A/A ratio, where no control shows one
CORRELATED = 0.5  # mean autocorrelation from which the factor is doubled

# A convention, said on the page: no figure is taken to lie further than this factor beyond what its scenario showed.
NATURAL_FACTOR = 2.0

# What a trial may lose to other processes before a gate fires. A figure that was not recorded counts as this much.
STEAL_PCT = 0.5
BACKGROUND_PCT = 1.0
CLOCK_STEP_S = 0.010
COLD_SHARE = 0.95  # of what was served, read from the disk; headers are not, but what is read ahead makes up for them

BUSY = 0.85  # of CPU time: above it a client no longer keeps its pace, and a server is what limits a load
RATE_REACHED = 0.98  # of the offered rate
