# Verbs only: what they do stands in scripts/ and in the program `vmtoll` (.venv/bin/vmtoll --help).
.DEFAULT_GOAL := help
VMTOLL := .venv/bin/vmtoll
E ?= demo
LINK ?= unshaped
RUN ?= results/latest
LAB_OPTIONS = $(if $(INVENTORY),--inventory $(INVENTORY))

.PHONY: help setup demo test lint lab-up lab-down lab-status provision run report lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## install Debian packages and the pinned Python environment
	@scripts/setup

demo: setup ## from nothing to a report: image, lab, provisioning, experiment `demo`
	@$(VMTOLL) demo

test: setup ## every test: linters, unit tests, the C server's, and a short run in the embedded lab
	@scripts/test

lint: setup ## all linters
	@scripts/lint

lab-up: setup ## bring the embedded lab up (LINK=unshaped, 100mbit, 1gbit)
	@$(VMTOLL) lab up --link $(LINK)

lab-down: setup ## remove the embedded lab without a trace
	@$(VMTOLL) lab down

lab-status: setup ## is the lab up, and does every machine answer?
	@$(VMTOLL) lab status

provision: setup ## bring the machines of INVENTORY (default: the lab) into their state
	@$(VMTOLL) provision $(LAB_OPTIONS)

run: setup ## run an experiment (E=demo, INVENTORY=… for real machines)
	@$(VMTOLL) run $(E) $(LAB_OPTIONS)

report: setup ## write a run's report anew (RUN=results/latest)
	@$(VMTOLL) report $(RUN)

lock: ## pin the Python environment anew (needs pip-tools; takes minutes)
	@.venv/bin/pip-compile --quiet --upgrade --strip-extras --allow-unsafe --generate-hashes --extra dev \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options --no-header \
		--output-file requirements.txt pyproject.toml

clean: ## remove what was built in this folder (not results, not the image cache)
	@$(MAKE) -s -C server-builds/lighttz clean
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .ansible *.egg-info
