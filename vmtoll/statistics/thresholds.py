"""The limits behind verdicts and gates, each in one place. Shares and probabilities are fractions."""

ALPHA = 0.05  # probability of any wrong verdict on a page
CONFIDENCE = 0.95
POWER = 0.8  # of a plan, and of a detectable difference
PRIMARY_SHARE = 0.5  # of ALPHA, for the primary metrics of a page
MARGIN = 0.02  # difference to plan blocks for where no margin of equivalence applies

# Fewest units for a difference, and for equivalence. Three boots are three draws of where pages and interrupts lie;
# with fewer than five test beds, one odd host decides.
MIN_BLOCKS, MIN_EQUIVALENT_BLOCKS = 3, 6
MIN_BOOTS, MIN_EQUIVALENT_BOOTS = 3, 4
MIN_TEST_BEDS = 5
MIN_FLEET = 20  # test beds from which on their hosts are compared: fewer do not say what is usual
MAX_BLOCKS = 1000  # where the search for "how many more blocks" gives up

SPREAD_FLOOR = 0.002  # least standard deviation of a block's log ratio: agreement better than 0.2% adds no certainty
SKEWED = 0.01  # how often normal blocks may look skewed

# The rule of every block: each must show a difference beyond this factor, and beyond the square of the A/A difference.
EVERY_BLOCK_FACTOR = 2.0
FEW_EVERY_BLOCKS, ENOUGH_EVERY_BLOCKS = 4, 6
FACTOR_OF_FEW = 4.0
UNKNOWN_NOISE = 4.0  # the A/A difference to assume without a control, a ratio
CORRELATED = 0.5  # mean autocorrelation from which on the factor doubles

# A convention, stated on the page: no figure lies further than this factor beyond the figures of its scenario.
NATURAL_FACTOR = 2.0

# Disturbances that a trial may have before a gate fires. A figure that was not recorded counts as this much.
STEAL_PCT = 0.5
BACKGROUND_PCT = 1.0
CLOCK_STEP_S = 0.010
COLD_SHARE = 0.95  # least share of the served bytes to come from disk; read-ahead makes up for headers, which do not

BUSY = 0.85  # of CPU time: above it a client is saturated, and a server limits the load
RATE_REACHED = 0.98  # of the offered rate
