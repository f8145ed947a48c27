# make help lists the targets
LAB := tests/lab/lab
DEBIAN ?= 12
SALT ?= 3008
NAME ?= demo
ARGS ?=

.PHONY: help test test-unit test-rootless test-lab test-matrix test-bare lint coverage-api docs lab-up lab-down lab-sync lab-build \
	demo demo-down publish life bench bench-ha bench-backup bench-page corpus chaos backup-random ha coverage parity mutation site bench-exporter swarm wheel changelog release

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

test: ## everything: lint, unit, functional and lab tests (root, Debian 12)
	$(LAB) test $(ARGS)

test-unit: ## the unit tests: no root, a minute
	$(LAB) pytest -q -n $$(($$(nproc) + 1)) --dist worksteal tests/unit $(ARGS)

test-rootless: ## a master and minions of an unprivileged user on libvirt's test driver: SALT=3007 WAY=pip
	SALTVIRT_LAB_SALT=$(SALT) SALTVIRT_WAY=$(WAY) $(LAB) rootless -q $(ARGS)

test-lab: ## the lab tests only
	$(LAB) test -m lab $(ARGS)

test-bare: ## make test on a Debian that has nothing but make, git and python3, as CI runs it
	$(LAB) bare make test

test-matrix: ## tutorial, keys, states, migration, update on Debian 12 and 13 with Salt 3006 to 3008: ARGS="--only 13/3006 --part keys"
	$(LAB) matrix $(ARGS)

demo: ## a cloud on this machine and the tutorial in it, command by command: NAME=demo2, REPLACE=1
	python3 -m tests.tutorial.demo --debian $(DEBIAN) --salt $(SALT) --name $(NAME) $(if $(filter-out 0 no false,$(REPLACE)),--replace)

demo-down: ## remove the demo's cloud: NAME=demo2
	$(LAB) --name $(NAME) down

publish: ## push the branch that masters list: make publish REMOTE=URL
	@test -n "$(REMOTE)" || { echo "make publish REMOTE=URL [BRANCH=published]"; exit 2; }
	python3 -m tests.lab.publish "$(REMOTE)" $(or $(BRANCH),published)

bench: ## ratios against peers and floors: placement, a deployment of 1,000 guests, images, what high availability costs a master of 100 hosts, the page with 2,000 guests in a browser; query, 20 minions and virt.migrate in a lab of its own, virt.init of 40 guests in another
	$(LAB) bench highstate
	$(LAB) bench placement
	$(LAB) bench deploy
	$(LAB) bench images
	$(LAB) bench ha_cost
	$(LAB) bench verbs
	$(LAB) bench page_browser
	$(LAB) --name bench up 2
	$(LAB) --name bench sync >/dev/null
	$(LAB) bench query bench && $(LAB) bench minions bench && $(LAB) bench migrate bench; \
		code=$$?; $(LAB) --name bench down; exit $$code
	$(LAB) --name bench up 3
	$(LAB) --name bench sync >/dev/null
	$(LAB) bench init bench; code=$$?; $(LAB) --name bench down; exit $$code

bench-ha: ## from a power cut to libvirt's running elsewhere, median and worst: ARGS="30 30", with a BMC and without
	$(LAB) bench ha $(ARGS)

bench-exporter: ## the exporter of metrics beside Debian's prometheus-libvirt-exporter, 500 guests of libvirt's test driver: ARGS=50
	$(LAB) bench exporter $(ARGS)

bench-page: ## 50 open pages and 20 consoles in a lab of its own: what the master takes of a core: ARGS="--pages 50 --consoles 20"
	$(LAB) --name bench up 2
	$(LAB) --name bench sync >/dev/null
	$(LAB) bench page bench $(ARGS); code=$$?; $(LAB) --name bench down; exit $$code

bench-backup: ## a full backup and an increment against Debian's virtnbdbackup on the same guest: ARGS="--mib 1024 --rounds 3"
	$(LAB) bench backup $(ARGS)

swarm: ## a master and N hosts with Salt's own protocol, asked and measured: make swarm N=200 ARGS=--help
	$(LAB) swarm $(or $(N),20) $(ARGS)

corpus: ## the definitions of libvirt's own tests (Debian's source package) read, edited, defined
	$(LAB) corpus --live 3 $(ARGS)

chaos: ## random steps with faults in a lab of three hosts: SEED=7, STEPS=file, MINUTES=60, LENGTH=10, SHRINK=20
	$(LAB) chaos $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(LENGTH),--length $(LENGTH)) $(if $(SHRINK),--shrink $(SHRINK)) $(ARGS)

backup-random: ## random steps for backups, each restored and compared bit for bit: SEED=7, RUNS=50, STEPS=file, LENGTH=10, SHRINK=10
	$(LAB) backup-random $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(STEPS),--steps $(STEPS)) \
		$(if $(LENGTH),--length $(LENGTH)) $(if $(SHRINK),--shrink $(SHRINK)) $(ARGS)

life: ## every verb after every other verb, with guests that boot, about six hours: SEED=7, MINUTES=60, ARGS="--lane 1/2"
	$(LAB) life $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

ha: ## random clouds and faults for the decisions of high availability, in simulated time: RUNS=10000, SEED=1
	nice -n 19 python3 -m tests.ha.random --runs $(or $(RUNS),200) --seed $(or $(SEED),1) $(ARGS)

coverage: ## which lines all tests together reach, by package: ARGS=tests/unit for some, ARGS="--add tests/…" for more
	$(LAB) coverage $(ARGS)

lint: ## ruff, mypy --strict on what pyproject.toml lists, and the subjects of commits
	$(LAB) lint

parity: ## Salt 3007's virt and ours with one table of arguments, and what differs without a reason
	$(LAB) parity $(ARGS)

mutation: ## what decides is changed bit by bit: do the tests notice? ARGS="MODULE..." for some
	nice -n 10 $(LAB) mutation $(ARGS)

coverage-api: ## each function and state that Salt 3007 had, and the lab test that calls it
	python3 -m tests.tools.coverage_api $(ARGS)

docs: ## diagrams from docs/diagrams, tables of the manuals from the code, the dashboard for Perses from Grafana's
	python3 -m tests.tools.docs

site: ## the manuals as a site in build/site, with the references from the docstrings
	$(LAB) site $(ARGS)

wheel: ## what pip installs on masters and hypervisors, into build/wheel
	$(LAB) wheel $(ARGS)

changelog: ## what the fragments in docs/changelog.d would become
	$(LAB) release --draft

release: ## set the version, write the fragments into CHANGELOG.md: make release VERSION=1.2.0
	@test -n "$(VERSION)" || { echo "make release VERSION=1.2.0"; exit 2; }
	$(LAB) release "$(VERSION)"

lab-build: ## build what a lab needs, once
	$(LAB) build --debian $(DEBIAN) --salt $(SALT)

lab-up: ## a cloud on this machine: make lab-up N=3
	$(LAB) up $(or $(N),2) --debian $(DEBIAN) --salt $(SALT)

lab-sync: ## bring this working tree to the running lab
	$(LAB) sync

lab-down: ## remove the lab
	$(LAB) down
