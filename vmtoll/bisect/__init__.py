"""Find the change that cost performance: candidates in order, sittings with both anchors, one error for all of them."""
