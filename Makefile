# Verbs only: what they do stands in scripts/ and in the program `vmtoll` (.venv/bin/vmtoll --help).
.DEFAULT_GOAL := help
VMTOLL := .venv/bin/vmtoll
E ?= demo
LINK ?= unshaped
TOPOLOGY ?= single
RUN ?= results/latest
N ?= metal_vs_kvm
LAB_OPTIONS = $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(LIMIT),--limit '$(LIMIT)')

.PHONY: help setup demo test test-long lint lab-up lab-down lab-status provision preflight tune untune run campaign replication report notebook site bench-percentiles bench-ods bench-from-log bench-campaign lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: ## install Debian packages and the pinned Python environment
	@scripts/setup

demo: setup ## from nothing to a report: image, lab, provisioning, experiment `demo`
	@$(VMTOLL) demo

test: setup ## every test: linters, unit tests, the C server's, and a short run in the embedded lab
	@scripts/test

test-long: setup ## the same, more of the guest, and labs of other shapes: guests of every profile, three clients, two cells
	@scripts/test --long

lint: setup ## all linters
	@scripts/lint

lab-up: setup ## bring the embedded lab up (LINK=100mbit, TOPOLOGY=single or multi, GUESTS=kvm-2009,kvm-default)
	@$(VMTOLL) lab up --link $(LINK) --topology $(TOPOLOGY) $(if $(GUESTS),--guests $(GUESTS))

lab-down: setup ## remove the embedded lab without a trace
	@$(VMTOLL) lab down

lab-status: setup ## is the lab up, and does every machine answer?
	@$(VMTOLL) lab status

provision: setup ## bring the machines of INVENTORY (default: the lab) into their state
	@$(VMTOLL) provision $(LAB_OPTIONS)

preflight: setup ## are the machines of INVENTORY (default: the lab) fit to be measured?
	@$(VMTOLL) preflight $(LAB_OPTIONS)

tune: setup ## make the hosts steady whose inventory says how (vmtoll_tuning)
	@$(VMTOLL) tune $(LAB_OPTIONS)

untune: setup ## set them back to what they were
	@$(VMTOLL) untune $(LAB_OPTIONS)

run: setup ## run an experiment (E=demo; E=all: every published one; SCALE=small or full; INVENTORY=…)
	@$(VMTOLL) run $(E) $(if $(SCALE),--scale $(SCALE)) $(LAB_OPTIONS)

campaign: setup ## run experiments (E="demo …") in every cell of INVENTORY at the same time (SCALE=, LIMIT=)
	@$(VMTOLL) campaign $(E) $(if $(SCALE),--scale $(SCALE)) $(LAB_OPTIONS)

replication: setup ## write the page over the published claims of the last E=all anew
	@$(VMTOLL) replication

report: setup ## write a run's report anew (RUN=results/latest)
	@$(VMTOLL) report $(RUN)

notebook: setup ## run a notebook on a run: N=metal_vs_kvm, tails, capacity or replication, RUN=…, SET="RATE_RPS=500 …"
	@$(VMTOLL) notebook $(N) $(RUN) $(foreach one,$(SET),--set '$(one)')

site: setup ## write a page over all runs, to filter and compare (site/index.html)
	@$(VMTOLL) site

bench-percentiles: setup ## time and memory of exact percentiles over 100 million samples
	@.venv/bin/python -m analysis.bench.percentiles

bench-ods: setup ## time and memory of a spreadsheet of 100,000 rows
	@.venv/bin/python -m analysis.bench.ods

bench-from-log: setup ## time and memory of a workload out of an access log of 10 million lines
	@.venv/bin/python -m workloads.from_log.bench

bench-campaign: setup ## time and memory of the analysis of 200 million rows of fifty cells
	@.venv/bin/python -m analysis.bench.campaign

lock: ## pin the Python environment anew (needs pip-tools; takes minutes)
	@.venv/bin/pip-compile --quiet --upgrade --strip-extras --allow-unsafe --generate-hashes --extra dev --extra notebooks \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --no-header \
		--output-file requirements.txt pyproject.toml

clean: ## remove what was built in this folder (not results, not the image cache)
	@$(MAKE) -s -C server-builds/lighttz clean
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .ansible *.egg-info site
