#!/usr/bin/env Rscript
# A second implementation of vmtoll's verdict engine, written from
# docs "How verdicts are reached" (statistics.md) alone.
#
#   Rscript second_opinion.R CASES_DIR OUT_DIR
#
# Each comment names the section of the page which the function follows.

suppressPackageStartupMessages(library(jsonlite))

# ---- "Notation and constants" ------------------------------------------------

ALPHA <- 0.05
PRIMARY_SHARE <- 0.5
RHO <- (0:9) / 10
PRIOR <- c(rep(1, 9), 2) / 11
LEAST_DEVIATION <- 0.002
NO_SPREAD <- 1e-18
FEWEST <- list(block = c(difference = 3, equality = 6),
               boot = c(difference = 3, equality = 4))
UNKNOWN_AA <- log(4)
CORRELATED <- 0.5
POWER <- 0.8
PLAN_MARGIN <- 0.02
MOST_BLOCKS <- 1000
TOO_LARGE <- log(1000)
CLAIM_LEAST_DEVIATION <- 1e-12 # "Published claims"

METRICS <- c("throughput", "tail", "latency_p99", "cpu", "host_cpu")
STEP_METRICS <- c("throughput", "tail", "host_cpu", "cpu")
HIGHER_IS_BETTER <- "throughput"
PRIMARY <- c("throughput", "tail")
ONLY_RHO_0 <- c(1, rep(0, 9))

# ---- "Reading analysis.json": the input ---------------------------------------

# One key of all effects, NA where it is missing.
column <- function(effects, key) {
  vapply(effects, function(e) {
    v <- e[[key]]
    if (is.null(v)) NA_real_ else as.numeric(v)
  }, 0)
}

# The blocks and values of one series; a block without a value is not in it.
series <- function(block, boot, value) {
  keep <- !is.na(value)
  list(block = block[keep], boot = boot[keep], x = value[keep])
}

# Effects in logs, more is better: low, mid, high and the first replicates.
read_effects <- function(effects, higher) {
  block <- column(effects, "block")
  boot <- column(effects, "boot")
  boot[is.na(boot)] <- 1 # controls and claims are judged by blocks alone
  logs <- function(up, down) {
    v <- if (higher) log(column(effects, up)) else -log(column(effects, down))
    series(block, boot, v)
  }
  list(low = logs("low", "high"), mid = logs("mid", "mid"),
       high = logs("high", "low"),
       first_low = logs("first_low", "first_high"),
       first_high = logs("first_high", "first_low"))
}

# A member of a family: what the engine knows of one comparison.
member <- function(node, metric, place) {
  higher <- metric %in% HIGHER_IS_BETTER
  s <- read_effects(node$effects, higher)
  list(place = place, metric = metric, higher = higher, s = s,
       share = as.numeric(node$tests$share),
       margin = as.numeric(node$margin),
       aa = if (is.null(node$noise_floor)) UNKNOWN_AA
            else log1p(as.numeric(node$noise_floor)),
       open = isTRUE(node$open_in_every_block),
       # "Units"
       unit = if (length(unique(s$mid$boot)) >= 2) "boot" else "block",
       has_first = length(s$first_low$x) + length(s$first_high$x) > 0)
}

# ---- "Autocorrelation" --------------------------------------------------------

# Fit of one series at every rho of the grid; m, e, W, S and l have ten entries.
fit <- function(s, least = LEAST_DEVIATION) {
  n <- length(s$x)
  k <- length(RHO)
  if (n == 0) {
    return(list(n = 0, m = rep(NA_real_, k), e = rep(Inf, k)))
  }
  if (n == 1) {
    return(list(n = 1, m = rep(s$x, k), e = rep(Inf, k), W = rep(1, k),
                S = rep(0, k), l = rep(0, k)))
  }
  phi <- outer(RHO, diff(s$block), "^")
  root <- sqrt(1 - phi^2)
  x <- matrix(s$x, k, n, byrow = TRUE)
  z <- cbind(x[, 1], (x[, -1, drop = FALSE] - phi * x[, -n, drop = FALSE]) / root)
  w <- cbind(1, (1 - phi) / root)
  W <- rowSums(w^2)
  m <- rowSums(z * w) / W
  r <- z - m * w
  S <- rowSums(r^2)
  e <- sqrt(pmax(S, (n - 1) * least^2) / ((n - 1) * W))
  l <- -0.5 * (rowSums(log(1 - phi^2)) + log(W) +
                 (n - 1) * log(pmax(S, NO_SPREAD)))
  list(n = n, m = m, e = e, W = W, S = S, l = l, r = r, block = s$block)
}

# "Units": the mean over the blocks of each boot.
to_units <- function(s, unit) {
  if (unit == "block") return(s)
  means <- tapply(s$x, s$boot, mean)
  boots <- as.numeric(names(means))
  list(block = boots, boot = boots, x = as.numeric(means))
}

# "Effective series": K* from the excess squared correlation of residuals.
effective_series <- function(fits, best) {
  K <- length(fits)
  blocks <- sort(unique(unlist(lapply(fits, `[[`, "block"))))
  R <- matrix(0, length(blocks), K)
  M <- matrix(0, length(blocks), K)
  for (j in seq_len(K)) {
    at <- match(fits[[j]]$block, blocks)
    R[at, j] <- fits[[j]]$r[best, ]
    M[at, j] <- 1
  }
  n <- crossprod(M)            # blocks that both have
  ss <- crossprod(R^2, M)      # ss[i, j]: squares of i over the blocks of j
  chance <- 1 / (n - 1)
  excess <- (crossprod(R)^2 / (ss * t(ss)) - chance) / (1 - chance)
  use <- upper.tri(n) & n >= 4 & ss > NO_SPREAD & t(ss) > NO_SPREAD
  if (!any(use)) return(1)
  c <- max(0, mean(excess[use]))
  K / (1 + (K - 1) * c)
}

# "Weights of rho" of a family, from the mids of its members by boot.
family_weights <- function(mids) {
  if (length(mids) == 0) return(ONLY_RHO_0)
  fits <- list()
  for (s in mids) {
    for (b in unique(s$boot)) {
      at <- s$boot == b
      if (sum(at) < 3) next
      f <- fit(list(block = s$block[at], x = s$x[at]))
      if (f$S[1] > NO_SPREAD) fits[[length(fits) + 1]] <- f
    }
  }
  if (length(fits) == 0) return(PRIOR)
  L <- Reduce(`+`, lapply(fits, `[[`, "l"))
  K <- length(fits)
  K_eff <- effective_series(fits, which.max(L))
  w <- PRIOR * exp(K_eff / K * (L - max(L)))
  w / sum(w)
}

# "Over all rho": the mean, the two p-values and the two limits of a fit.
weighted_mean <- function(f, w) sum(w * f$m)

below <- function(f, w, x) {
  if (f$n < 2) return(0.5)
  on <- w > 0
  sum(w[on] * pt((f$m[on] - x) / f$e[on], f$n - 1))
}

above <- function(f, w, x) {
  if (f$n < 2) return(0.5)
  on <- w > 0
  sum(w[on] * pt((x - f$m[on]) / f$e[on], f$n - 1))
}

# x with sum of w T((m - x) / e; df) = level.
mixture_upper <- function(m, e, df, w, level) {
  on <- w > 0
  m <- m[on]; e <- e[on]; w <- w[on]
  ends <- m - qt(level, df) * e
  lo <- min(ends); hi <- max(ends)
  for (i in 1:60) {
    x <- (lo + hi) / 2
    if (x <= lo || x >= hi) break
    if (sum(w * pt((m - x) / e, df)) > level) lo <- x else hi <- x
  }
  (lo + hi) / 2
}

upper_limit <- function(f, w, level) {
  if (f$n < 2 || level <= 0) return(Inf)
  mixture_upper(f$m, f$e, f$n - 1, w, level)
}

lower_limit <- function(f, w, level) {
  if (f$n < 2 || level <= 0) return(-Inf)
  -mixture_upper(-f$m, f$e, f$n - 1, w, level)
}

# ---- "p-values" ----------------------------------------------------------------

enough <- function(f, unit, what) f$n >= FEWEST[[unit]][[what]]

p_better <- function(f, w, unit) {
  if (enough(f, unit, "difference")) above(f, w, 0) else 1
}

p_worse <- function(f, w, unit) {
  if (enough(f, unit, "difference")) below(f, w, 0) else 1
}

# Fits of a member with the weights of its family, and its two p-values.
test_member <- function(c, weights) {
  c$correlation <- sum(weights * RHO)
  c$w <- if (c$unit == "boot") ONLY_RHO_0 else weights
  c$low <- fit(to_units(c$s$low, c$unit))
  c$mid <- fit(to_units(c$s$mid, c$unit))
  c$high <- fit(to_units(c$s$high, c$unit))
  better <- p_better(c$low, c$w, c$unit)
  worse <- p_worse(c$high, c$w, c$unit)
  c$first_counts <- c$has_first && c$unit == "block"
  if (c$first_counts) {
    c$first_low <- fit(c$s$first_low)
    c$first_high <- fit(c$s$first_high)
    better <- max(better, p_better(c$first_low, c$w, "block"))
    worse <- max(worse, p_worse(c$first_high, c$w, "block"))
  }
  c$p_difference <- min(1, 2 * min(better, worse))
  c$p_equality <- 1
  if (c$margin > 0 && enough(c$low, c$unit, "equality") &&
        enough(c$high, c$unit, "equality")) {
    b <- log1p(c$margin)
    c$p_equality <- min(1, 2 * max(above(c$low, c$w, -b), below(c$high, c$w, b)))
  }
  c
}

# ---- "Holm's correction" ---------------------------------------------------------

holm_weights <- function(metrics) {
  primary <- metrics %in% PRIMARY
  if (all(primary) || !any(primary)) {
    return(rep(1 / length(metrics), length(metrics)))
  }
  ifelse(primary, PRIMARY_SHARE / sum(primary),
         (1 - PRIMARY_SHARE) / sum(!primary))
}

holm <- function(p, weight, share) {
  n <- length(p)
  s <- ifelse(share > 0, p / share / weight, Inf)
  left <- sum(weight)
  largest <- 0
  stop_at <- NA
  adjusted <- level <- numeric(n)
  rejects <- logical(n)
  for (i in order(s)) { # order() keeps the order of equal ones
    left <- max(left, weight[i])
    largest <- adjusted[i] <- max(largest, min(1, s[i] * left))
    rejects[i] <- adjusted[i] < ALPHA
    if (!rejects[i] && is.na(stop_at)) stop_at <- left
    D <- if (rejects[i]) left else stop_at
    level[i] <- min(ALPHA, ALPHA * weight[i] * share[i] / D)
    left <- left - weight[i]
  }
  list(adjusted = adjusted, rejects = rejects, level = level)
}

# ---- "Every block" -----------------------------------------------------------------

every_block_limit <- function(n, aa, correlation) {
  if (n < 4) return(Inf)
  if (n < 6) return(log(4) + 2 * aa)
  max(log(2), 2 * aa) + if (correlation >= CORRELATED) log(2) else 0
}

# 1: all above F, -1: all below -F, 0: neither.
every_block <- function(lows, highs, aa, correlation) {
  F_low <- every_block_limit(length(lows), aa, correlation)
  F_high <- every_block_limit(length(highs), aa, correlation)
  if (is.finite(F_low) && min(lows) > F_low) return(1)
  if (is.finite(F_high) && max(highs) < -F_high) return(-1)
  0
}

# ---- "Decisions" ---------------------------------------------------------------------

decide <- function(c) {
  c$by_every_block <- FALSE
  if (c$equality_rejects) {
    c$kind <- "equivalent"
  } else if (c$difference_rejects) {
    up <- c$low$n > 0 && weighted_mean(c$low, c$w) > 0
    c$kind <- if (up) "faster" else "slower"
  } else {
    sign <- if (c$share > 0) {
      every_block(c$s$low$x, c$s$high$x, c$aa, c$correlation)
    } else 0
    c$kind <- if (sign > 0) "faster" else if (sign < 0) "slower" else "undecided"
    c$by_every_block <- sign != 0
  }
  c$lambda <- if (c$kind == "equivalent") c$equality_level else c$difference_level
  c$interval <- interval(c)
  c$also_different <- c$kind == "equivalent" && c$difference_rejects &&
    !is.null(c$interval) && (c$interval[1] > 0 || c$interval[2] < 0)
  if (c$kind == "undecided") c$because <- why_undecided(c)
  c
}

# The range of the blocks ("Every block", last paragraph).
blocks_range <- function(c) {
  lo <- min(c$s$mid$x)
  hi <- max(c$s$mid$x)
  if (c$kind == "faster") lo <- min(c$s$low$x)
  if (c$kind == "slower") hi <- max(c$s$high$x)
  c(lo, hi)
}

# ---- "The interval" --------------------------------------------------------------------

interval <- function(c) {
  if (c$lambda <= 0 || c$by_every_block) return(NULL)
  lo <- lower_limit(c$low, c$w, c$lambda / 2)
  hi <- upper_limit(c$high, c$w, c$lambda / 2)
  if (c$first_counts && c$kind != "equivalent") {
    lo <- min(lo, lower_limit(c$first_low, c$w, c$lambda / 2))
    hi <- max(hi, upper_limit(c$first_high, c$w, c$lambda / 2))
  }
  if (c$low$n < 3) lo <- -Inf
  if (c$high$n < 3) hi <- Inf
  if (is.infinite(lo) && is.infinite(hi)) return(NULL)
  if ((is.infinite(lo) || is.infinite(hi)) && c$kind == "undecided") return(NULL)
  # "at least": all low and all mid are those of blocks (QUESTIONS.md)
  if (is.infinite(lo)) lo <- min(c$s$low$x, c$s$mid$x, hi)
  if (is.infinite(hi)) hi <- max(c$s$high$x, c$s$mid$x, lo)
  c(lo, hi)
}

# Half the 95% interval by sampling alone, in logs.
half_width <- function(c) {
  (upper_limit(c$mid, c$w, ALPHA / 2) - lower_limit(c$mid, c$w, ALPHA / 2)) / 2
}

standard_error <- function(c) {
  if (c$mid$n < 2) return(Inf)
  on <- c$w > 0
  exp(sum(c$w[on] * log(c$mid$e[on])))
}

# ---- "Why it is undecided" ----------------------------------------------------------------

why_undecided <- function(c) {
  if (c$share == 0) return("no-look-yet")
  if (!enough(c$low, c$unit, "difference") &&
        !enough(c$high, c$unit, "difference")) return("few-blocks")
  if (c$open) return("limit")
  if (identical(c$s$low, c$s$mid) && identical(c$s$high, c$s$mid)) return("noise")
  difference <- 2 * min(above(c$mid, c$w, 0), below(c$mid, c$w, 0))
  if (difference < c$difference_level) return("findings")
  if (c$margin > 0) {
    b <- log1p(c$margin)
    equality <- 2 * max(above(c$mid, c$w, -b), below(c$mid, c$w, b))
    if (equality < c$equality_level) return("findings")
  }
  x <- c$s$mid$x
  if (every_block(x, x, c$aa, c$correlation) != 0) return("findings")
  "noise"
}

# ---- "What it could have shown" --------------------------------------------------------------

reach <- function(sigma, w, N, df, lambda) {
  e <- sigma / sqrt(1 + (N - 1) * (1 - RHO) / (1 + RHO))
  zero <- rep(0, length(RHO))
  mixture_upper(zero, e, df, w, lambda / 2) +
    mixture_upper(zero, e, df, w, 1 - POWER)
}

could_have_shown <- function(c) {
  lambda <- if (c$difference_level > 0) c$difference_level else ALPHA
  n <- c$mid$n
  blocks <- length(c$s$mid$x)
  per_unit <- if (c$unit == "boot") max(1, round(blocks / n)) else 1
  fewest <- FEWEST[[c$unit]][["equality"]]
  if (n < 2) {
    return(list(detectable = NULL, blocks_needed = max(1, fewest - n) * per_unit))
  }
  sigma <- c$mid$e * sqrt(c$mid$W)

  x <- reach(sigma, c$w, n, n - 1, lambda)
  F <- every_block_limit(blocks, c$aa, c$correlation)
  if (is.finite(F)) {
    x <- min(x, F + sd(c$s$mid$x) * qnorm(POWER^(1 / blocks)))
  }
  detectable <- if (x < TOO_LARGE) expm1(x) else NULL

  target <- log1p(if (c$margin > 0) c$margin else PLAN_MARGIN)
  sigma <- sigma * sqrt((n - 1) / qchisq(1 - POWER, n - 1))
  suffices <- function(N) reach(sigma, c$w, N, N - 1, lambda) <= target
  lo <- max(n + 1, fewest)
  hi <- MOST_BLOCKS
  needed <- NULL
  if (lo <= hi && suffices(hi)) { # the reach falls with N, so halve
    while (lo < hi) {
      N <- (lo + hi) %/% 2
      if (suffices(N)) hi <- N else lo <- N + 1
    }
    needed <- (lo - n) * per_unit
  }
  list(detectable = detectable, blocks_needed = needed)
}

# ---- "Reading analysis.json": the results -------------------------------------------------------

# A pair of logs as ratios, swapped and inverted where less is better.
ratios <- function(pair, higher) if (higher) exp(pair) else exp(-rev(pair))

finite <- function(x) if (length(x) == 1 && is.finite(x)) x else NULL

results <- function(c, weight, size) {
  estimate <- list(ratio = ratios(rep(weighted_mean(c$mid, c$w), 2), c$higher)[1])
  out <- list(kind = c$kind)
  out$because <- c$because # NULL, and so no key, unless undecided
  out$by_every_block <- c$by_every_block
  out$also_different <- c$also_different
  if (!is.null(c$interval)) {
    ends <- ratios(c$interval, c$higher)
    estimate$low <- ends[1]
    estimate$high <- ends[2]
    out$confidence <- 1 - c$lambda
  }
  out$estimate <- estimate
  range <- ratios(blocks_range(c), c$higher)
  # blocks_range.ratio, blocks and boots: not on the page (QUESTIONS.md)
  out$blocks_range <- list(ratio = estimate$ratio, low = range[1], high = range[2])
  out$blocks <- length(c$s$mid$x)
  out$boots <- length(unique(c$s$mid$boot))
  means <- ratios(c(weighted_mean(c$low, c$w), weighted_mean(c$high, c$w)), c$higher)
  out$mean_low <- finite(means[1])
  out$mean_high <- finite(means[2])
  out$tests <- list(share = c$share, weight = weight, family = size,
                    difference = c$p_difference, difference_holm = c$difference_holm)
  if (c$margin > 0) {
    out$tests$equivalence <- c$p_equality
    out$tests$equivalence_holm <- c$equality_holm
  }
  out$rho_weights <- c$w
  out$correlation <- c$correlation
  out$half_width <- finite(expm1(half_width(c)))
  out$standard_error <- finite(standard_error(c))
  if (c$kind == "undecided") {
    shown <- could_have_shown(c)
    out$detectable <- shown$detectable
    out$blocks_needed <- shown$blocks_needed
  }
  out
}

# Judges one family; returns its weights of rho and the members' results.
judge_family <- function(members) {
  weights <- family_weights(lapply(members, function(c) c$s$mid))
  if (length(members) == 0) return(list(weights = weights, results = list()))
  members <- lapply(members, test_member, weights = weights)
  get <- function(key) vapply(members, `[[`, 0, key)
  weight <- holm_weights(vapply(members, `[[`, "", "metric"))
  difference <- holm(get("p_difference"), weight, get("share"))
  equality <- holm(get("p_equality"), weight, get("share"))
  out <- lapply(seq_along(members), function(i) {
    c <- members[[i]]
    c$difference_holm <- difference$adjusted[i]
    c$difference_rejects <- difference$rejects[i]
    c$difference_level <- difference$level[i]
    c$equality_holm <- equality$adjusted[i]
    c$equality_rejects <- equality$rejects[i]
    c$equality_level <- equality$level[i]
    results(decide(c), weight[i], length(members))
  })
  list(weights = weights, results = out)
}

# ---- "The A/A control" -----------------------------------------------------------------------------

loop_of <- function(scenario) if (scenario$load$kind == "closed") "closed" else "open"

judge_controls <- function(controls) {
  s <- lapply(controls, function(k) {
    read_effects(k$effects, k$metric %in% HIGHER_IS_BETTER)
  })
  has_mid <- vapply(s, function(x) length(x$mid$x) > 0, NA)
  controls <- controls[has_mid]
  s <- s[has_mid]
  if (length(s) == 0) return(list())
  for (i in seq_along(s)) for (k in names(s[[i]])) s[[i]][[k]]$boot[] <- 1
  w <- family_weights(lapply(s, `[[`, "mid"))
  alone <- ALPHA / length(s)
  differs <- vapply(s, function(x) {
    low <- fit(x$low)
    high <- fit(x$high)
    p <- min(1, 2 * min(p_better(low, w, "block"), p_worse(high, w, "block")))
    lo <- if (low$n < 3) -Inf else lower_limit(low, w, alone / 2)
    hi <- if (high$n < 3) Inf else upper_limit(high, w, alone / 2)
    if (p < alone && (lo > 0 || hi < 0)) min(abs(c(lo, hi))) else 0
  }, 0)
  aa <- vapply(s, function(x) max(abs(x$mid$x)), 0)
  metric <- vapply(controls, `[[`, "", "metric")
  loop <- vapply(controls, function(k) loop_of(k$scenario), "")
  key <- paste(metric, loop)
  lapply(unique(key), function(k) {
    i <- which(key == k)
    list(metric = metric[i[1]], loop = loop[i[1]],
         noise_floor = expm1(max(aa[i])), widened = expm1(max(differs[i])))
  })
}

# ---- "Published claims" -------------------------------------------------------------------------------

judge_claim <- function(claim, w) {
  if (length(claim$effects) == 0) return(setNames(list(), character()))
  lambda <- if (is.null(claim$alpha)) 0 else as.numeric(claim$alpha)
  two <- length(claim$sides) >= 2
  block <- column(claim$effects, "block")
  boot <- rep(1, length(block))
  key <- function(k) {
    v <- column(claim$effects, k)
    series(block, boot, if (two) log(v) else v)
  }
  least <- if (two) LEAST_DEVIATION else CLAIM_LEAST_DEVIATION
  s <- list(low = key("low"), mid = key("mid"), high = key("high"))
  f <- lapply(s, fit, least = least)
  ends <- NULL
  if (f$low$n >= 3 && f$high$n >= 3 && lambda > 0) {
    alike <- length(unique(s$low$x)) == 1 && length(unique(s$high$x)) == 1
    ends <- if (!two && alike) {
      c(s$low$x[1], s$high$x[1])
    } else {
      c(lower_limit(f$low, w, lambda / 2), upper_limit(f$high, w, lambda / 2))
    }
    ends <- if (two) exp(ends) else pmax(0, ends)
  }
  middle <- weighted_mean(f$mid, w)
  result <- list()
  result$ratio <- finite(if (two) exp(middle) else middle)
  result$low <- ends[1]
  result$high <- ends[2]
  out <- list(rho_weights = w)
  out[[if (two) "ratio" else "level"]] <- result
  out
}

# ---- "Reading analysis.json": the tree -------------------------------------------------------------------

judged <- function(node) {
  !is.null(node) && !identical(node$kind, "not-judged") &&
    any(!is.na(column(node$effects, "mid")))
}

first_family <- function(case) {
  members <- list()
  for (i in seq_along(case$comparisons)) {
    for (metric in METRICS) {
      node <- case$comparisons[[i]]$verdicts[[metric]]
      if (judged(node)) {
        members[[length(members) + 1]] <- member(node, metric, list(i, metric))
      }
    }
  }
  members
}

second_family <- function(case) {
  members <- list()
  scenarios <- case$tuning_steps$scenarios
  for (metric in STEP_METRICS) {
    for (i in seq_along(scenarios)) {
      steps <- scenarios[[i]]$metrics[[metric]]$steps
      for (j in seq_along(steps)) {
        if (judged(steps[[j]])) {
          members[[length(members) + 1]] <-
            member(steps[[j]], metric, list(i, metric, j))
        }
      }
    }
  }
  members
}

judge_case <- function(case) {
  not_judged <- list(kind = "not-judged")
  first <- first_family(case)
  one <- judge_family(first)
  comparisons <- lapply(case$comparisons, function(k) {
    list(scenario = k$scenario, arm = k$arm,
         verdicts = lapply(k$verdicts, function(v) not_judged))
  })
  for (i in seq_along(first)) {
    at <- first[[i]]$place
    comparisons[[at[[1]]]]$verdicts[[at[[2]]]] <- one$results[[i]]
  }
  out <- list(run_id = case$run_id, comparisons = comparisons)

  if (!is.null(case$tuning_steps)) {
    second <- second_family(case)
    two <- judge_family(second)
    scenarios <- lapply(case$tuning_steps$scenarios, function(k) {
      list(scenario = k$scenario, metrics = lapply(k$metrics, function(m) {
        list(steps = lapply(m$steps, function(v) not_judged))
      }))
    })
    for (i in seq_along(second)) {
      at <- second[[i]]$place
      scenarios[[at[[1]]]]$metrics[[at[[2]]]]$steps[[at[[3]]]] <- two$results[[i]]
    }
    out$tuning_steps <- list(scenarios = scenarios)
  }

  out$controls <- judge_controls(case$controls)
  out$claims <- lapply(case$claims, judge_claim, w = one$weights)
  out
}

main <- function(args) {
  if (length(args) != 2) stop("usage: Rscript second_opinion.R CASES_DIR OUT_DIR")
  dir.create(args[2], showWarnings = FALSE, recursive = TRUE)
  for (path in sort(list.files(args[1], "[.]json$", full.names = TRUE))) {
    case <- fromJSON(path, simplifyVector = FALSE)
    text <- toJSON(judge_case(case), auto_unbox = TRUE, digits = NA, pretty = 1)
    writeLines(text, file.path(args[2], basename(path)))
  }
}

if (sys.nframe() == 0) main(commandArgs(trailingOnly = TRUE))
