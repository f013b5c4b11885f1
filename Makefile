# Targets only: what they do is in scripts/ and in the program `vmtoll` (.venv/bin/vmtoll --help).
.DEFAULT_GOAL := help
VMTOLL := .venv/bin/vmtoll
E ?= demo
LINK ?= unshaped
TOPOLOGY ?= single
RUN ?= results/latest
RUNS ?= results/control/*
N ?= metal_vs_kvm
# Of the image: trixie or bookworm; default: trixie, the newest.
ifdef SUITE
export VMTOLL_SUITE := $(SUITE)
endif
AGREED = $(if $(YES),--yes)
LAB_OPTIONS = $(if $(INVENTORY),--inventory $(INVENTORY)) $(if $(LIMIT),--limit '$(LIMIT)')

.PHONY: help setup setup-tests demo quick check test test-long test-ci test-kvm-quick test-kvm lint lab-up lab-down lab-status provision status unprovision preflight tune untune run campaign replication report notebook site docs bench-percentiles bench-ods bench-from-log bench-fleet bench-verdicts bench-control-runs bench-histories bench-shootout lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: ## install Debian packages and the pinned Python environment; as root, link /usr/local/bin/vmtoll
	@scripts/setup

setup-tests: ## the same, with what tests and linters need
	@scripts/setup --tests

demo: setup ## bring the lab up, run the experiment `demo`, write its report (SUITE=trixie or bookworm)
	@$(VMTOLL) demo

quick: ## ruff and the fast unit tests
	@scripts/quick

check: ## linters and unit tests: no root, no lab (packages: setup-tests)
	@scripts/check

test: setup-tests ## every test: linters, unit and integration tests, the C server's, and the embedded lab
	@scripts/test

test-long: setup-tests ## the same, and labs of other topologies: guests of every profile, three clients, two test beds, the demo on an emulated controller
	@scripts/test --long

test-ci: setup-tests ## what CI runs: test, then test-kvm-quick
	@scripts/test --ci

test-kvm-quick: setup-tests ## one virtual machine as KVM host, one guest: provisioning twice, a trial on each (minutes)
	@scripts/test --kvm-quick

test-kvm: setup-tests ## labs of virtual machines with their own kernels as KVM hosts: guests of every profile under KVM
	@scripts/test --kvm

lint: setup-tests ## all linters
	@scripts/lint

lab-up: setup ## bring the embedded lab up (LINK=100mbit, TOPOLOGY=containers, machine-pairs, machines, migration, multi, runtimes or single, GUESTS=kvm-2009,kvm-default, SUITE=trixie or bookworm)
	@$(VMTOLL) lab up --link $(LINK) --topology $(TOPOLOGY) $(if $(GUESTS),--guests $(GUESTS))

lab-down: setup ## remove the embedded lab
	@$(VMTOLL) lab down

lab-status: setup ## show whether the lab is up and every machine answers
	@$(VMTOLL) lab status

provision: setup ## install servers, sites and load tools on the machines of INVENTORY (default: the lab)
	@$(VMTOLL) provision $(LAB_OPTIONS) $(AGREED)

status: setup ## list what vmtoll changed on the machines of INVENTORY and has not undone
	@$(VMTOLL) status $(LAB_OPTIONS)

unprovision: setup ## restore the machines of INVENTORY to what they were (YES=1: do not ask)
	@$(VMTOLL) unprovision $(LAB_OPTIONS) $(AGREED)

preflight: setup ## check the machines of INVENTORY (default: the lab) before anything runs
	@$(VMTOLL) preflight $(LAB_OPTIONS)

tune: setup ## apply the performance settings of the inventory (vmtoll_tuning) to the hosts
	@$(VMTOLL) tune $(LAB_OPTIONS)

untune: setup ## restore the hosts' own settings
	@$(VMTOLL) untune $(LAB_OPTIONS)

run: setup ## run an experiment (E=demo; E=all: every published one; SCALE=small or full; INVENTORY=…)
	@$(VMTOLL) run $(E) $(if $(SCALE),--scale $(SCALE)) $(LAB_OPTIONS)

campaign: setup ## run experiments (E="demo …") on every test bed of INVENTORY in parallel (SCALE=, LIMIT=)
	@$(VMTOLL) campaign run $(E) $(if $(SCALE),--scale $(SCALE)) $(LAB_OPTIONS)

replication: setup ## write the report on the published claims of the last E=all again
	@$(VMTOLL) replication

report: setup ## write a run's report again (RUN=results/latest)
	@$(VMTOLL) report $(RUN)

notebook: setup ## run a notebook on a run: N=metal_vs_kvm, tails, capacity or replication, RUN=…, SET="RATE_RPS=500 …"
	@$(VMTOLL) notebook $(N) $(RUN) $(foreach parameter,$(SET),--set '$(parameter)')

site: setup ## write a page over all runs, to filter and compare (site/index.html)
	@$(VMTOLL) site

docs: setup-tests ## write the documents as a site (build/site/index.html), every link checked
	@scripts/docs

bench-percentiles: setup ## time and memory of exact percentiles over 100 million samples
	@.venv/bin/python -m benchmarks.percentiles

bench-ods: setup ## time and memory of a spreadsheet of 100,000 rows
	@.venv/bin/python -m benchmarks.ods

bench-from-log: setup ## time and memory of a workload out of an access log of 10 million lines
	@.venv/bin/python -m benchmarks.access_log

bench-fleet: setup-tests ## time and memory of the analysis of 10,000 test beds, of compaction, of DuckDB and Spark; writes the table in docs
	@.venv/bin/pip install -q --require-hashes -r tests/spark.txt
	@.venv/bin/python -m benchmarks.fleet

bench-verdicts: setup ## how often a report is wrong and what it finds, by simulation; writes the table and chart in docs
	@.venv/bin/python -m benchmarks.verdicts
	@.venv/bin/python -m benchmarks.until

bench-control-runs: setup ## how often A/A controls of RUNS differ; writes the table and the CSV in docs
	@.venv/bin/python -m benchmarks.control_runs $(RUNS)

bench-histories: setup ## how often `vmtoll watch` is wrong and what it finds, by simulation; writes the table in docs
	@.venv/bin/python -m benchmarks.histories

bench-shootout: setup-tests ## record pages whose truth is known, let vmtoll and other rules judge them; writes the tables in docs (hours, on an idle machine; MINUTES=40 stops earlier, and the next call goes on)
	@.venv/bin/python -m benchmarks.shootout pilot --cpu 1
	@.venv/bin/python -m benchmarks.shootout record $(if $(MINUTES),--minutes $(MINUTES))
	@.venv/bin/python -m benchmarks.shootout judge
	@.venv/bin/python -m benchmarks.shootout hyperfine

lock: setup-tests ## pin the Python environments again (takes minutes)
	@scripts/lock

clean: ## remove what was built in this folder, and the link /usr/local/bin/vmtoll to it (not results, not the image cache)
	@$(MAKE) -s -C server-builds/lighttz clean
	@scripts/link --remove
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .ansible *.egg-info build site
