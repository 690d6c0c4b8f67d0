# Gateweigh's tasks; `make` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED := 0
# One form of each package for programs, tests and checks, so that each is compiled once.
export GOFLAGS := $(GOFLAGS) -trimpath

# ./... leaves out folders that begin with a dot.
PACKAGES := ./... ./.ci/tally
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Programs of the same sources are one build, on whatever architecture: lab and agents of others refuse each other.
SOURCES = $(eval SOURCES := $(or $(shell .ci/sources $(AGENTS)),$(error the identity of the sources is not known)))$(SOURCES)
LDFLAGS = -X main.version=$(VERSION) -X github.com/gateweigh/gateweigh/lab/agent.Sources=$(SOURCES)

# What agents are built for. arm: version 5, whose code runs on 6 and 7 too; mips: without a floating-point unit.
AGENTS := amd64 arm64 arm 386 mips mipsle riscv64
export GOARM := 5
export GOMIPS := softfloat

# Namespaces need root: asked for where it is needed, and only there, so that
# what is built stays the user's own.
ROOT := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo -E env "PATH=$$PATH:/usr/sbin:/sbin")
EXEC := $(if $(ROOT),-exec '$(ROOT)')

.PHONY: coverage help deps deps-run guest-kernel build debian-tree nfpm agents man packages test-packages check test test-one test-kernel test-bridge run generate bench over-ssh campaign live-page feel soak memory clean

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install the Debian packages that are missing, for all experiments and tests
	@.ci/deps

deps-run:
	@.ci/deps run

# Tests in network namespaces of their own reach no server.
guest-kernel: deps build
	@$(ROOT) bin/gateweigh kernel fetch --missing || echo "without Debian's kernel tests of guests are skipped, and the part under that kernel fails: gateweigh kernel fetch debian"

debian-tree: deps
	@$(ROOT) .ci/tree >/dev/null || echo "without Debian's packages the test of gatewayd's package fails: the others run"

# What packs the packages: tests make them too.
nfpm:
	@go mod download -modfile=packaging/tools.mod

build: ## bin/gateweigh and bin/gatewayd: static binaries
	go build -ldflags '-w $(LDFLAGS)' -o bin/ ./cmd/gateweigh ./cmd/gatewayd

agents: deps build ## bin/agents: the agent alone, for boxes of seven architectures; tested in emulators, ARM and MIPS as routers too. gatewayd is built with 32 bits too
	flags='-s -w $(LDFLAGS)'; for arch in $(AGENTS); do \
	GOARCH=$$arch go build -ldflags "$$flags" -o bin/agents/gateweigh-agent-$$arch ./cmd/gateweigh-agent; done
	AGENTS=$(CURDIR)/bin/agents go test -count=1 -v -run Themselves $(EXEC) ./cmd/gateweigh-agent
	BOXES=arm,mipsle go test -count=1 -vet=off -ldflags=-w -exec '$(ROOT) "$(CURDIR)/.ci/apart"' -run TestOnMachines/small ./cmd/gateweigh
	for arch in arm 386 mips; do GOARCH=$$arch go build -o /dev/null ./cmd/gatewayd; done

# What a page is dated by is the commit, so that whoever makes it makes the same.
man: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null)
man: build ## bin/share: man pages, and completion for bash, zsh and fish, as packages have them below /usr/share
	rm -rf bin/share
	bin/gateweigh manual bin/share
	bin/gatewayd manual bin/share

# ARM: Debian's armhf. OpenWrt's names of processors differ by model: make packages OPENWRT=arm64:aarch64_cortex-a72
ARCHES  ?= amd64 arm64 arm
OPENWRT ?= amd64:x86_64 arm64:aarch64_generic arm64:aarch64_cortex-a53 arm:arm_cortex-a7_neon-vfpv4
INTO    ?= $(CURDIR)/bin/packages

packages: ## bin/packages: .deb, .rpm, OpenWrt's .apk and .ipk, OCI images of gatewayd and gateweigh, the same bytes for the same commit
	SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}" VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' \
	ARCHES='$(ARCHES)' AGENTS='$(AGENTS)' OPENWRT='$(OPENWRT)' PROGRAMS='gatewayd gateweigh' \
	FORMATS='deb rpm apk ipk oci' packaging/build '$(INTO)'

test-packages: deps nfpm debian-tree packages ## all packages' contents, lintian; installation, upgrade, removal and boot in a Debian tree
	go test -count=1 -v -vet=off -ldflags=-w -exec '$(ROOT) "$(CURDIR)/.ci/apart"' ./packaging -args -made '$(INTO)'

# GOGC=400 spares staticcheck a quarter of its CPU time, for 0.6 GB of memory.
check: ## formatting, go vet, staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:" $$unformatted; exit 1; fi
	go vet $(PACKAGES)
	GOGC=400 go tool staticcheck $(PACKAGES)

# Which parts there are, and why, is in .ci/suite. A second make test of this checkout waits for the first.
test: deps build nfpm guest-kernel debian-tree ## every test, as root, with real daemons, some under another kernel; the ten slowest are named
	@ROOT='$(ROOT)' flock -o bin/suite.lock go run ./.ci/tally '.ci/suite count' '.ci/suite guest' '.ci/suite gateway' '.ci/suite daemon 1' '.ci/suite daemon 2' '.ci/suite daemon 3' '.ci/suite machines' then \
	'.ci/suite labs' '.ci/suite programs' '.ci/suite runs 1' '.ci/suite runs 2' '.ci/suite runs 3' '.ci/suite runs 4' '.ci/suite computing' then '.ci/suite alone'

PKG ?= ./...
RUN ?= .

test-one: deps build nfpm guest-kernel debian-tree ## some tests, as root, each package in a network of its own: PKG=./lab/dut RUN=TestOpenNDS
	go test -count=1 -v -vet=off -ldflags=-w -timeout 20m -p 1 -exec '$(ROOT) "$(CURDIR)/.ci/apart"' -run '$(RUN)' $(PKG)

# What of this is run in a guest, on Debian's kernel, is the least; this is the rest, and other kernels. Debian's is fetched by
# apt when it is not here; gateweigh kernel list names others.
KERNEL ?= debian
SET ?= all
LIMIT ?= 7200

test-kernel: deps build ## gatewayd's data paths under another kernel, KERNEL=debian: SET=core the least (paths and programs, half of it each), or all of an hour and more; LIMIT=7200 seconds a package
	ROOT='$(ROOT)' LIMIT='$(LIMIT)' .ci/guest '$(KERNEL)' '$(SET)' | go run ./.ci/tally

# Where the kernel has netfilter of bridged frames as a module: modprobe br_netfilter.
test-bridge: deps build ## all data paths' tests where the LAN is a bridge of the gateway's machine whose frames netfilter sees: ten minutes
	go test -count=1 -vet=off -ldflags=-w -timeout 30m -p 1 -exec '$(ROOT) "$(CURDIR)/.ci/apart"' -run 'TestSuite|TestNATSurvivesFlushAndRestart|TestNATOfSubscribers' \
	./gateway/datapath/ebpf ./gateway/datapath/compared/tun ./gateway/datapath/compared/nfqueue ./gateway/datapath/kernel ./cmd/gatewayd -args -clients gateway

run: deps-run build ## measure: the quick experiment, about a minute and a half with the set-up
	$(ROOT) bin/gateweigh run

generate: ## generated code, eBPF objects and pages of the manual (clang, llvm, libbpf-dev)
	@.ci/deps generate
	go generate ./...

bench: ## benchmarks
	go test -run '^$$' -bench . -skip 'Feel|Soak|Memory|ThreeNodes|LargeCampaign|LargeReport|OverSSH|WithLivePage' -benchmem $(EXEC) ./...

coverage: ## how often intervals of runs that end when exact enough hold what is true: a table
	go test -count 1 -run TestCoverageOfLooks -v ./lab/analysis/inference

feel: deps build ## what clients notice of their rate limits, and of openNDS's where it is on PATH: half an hour
	go test -run '^$$' -bench Feel -benchtime 1x -timeout 1h -exec '$(ROOT) "$(CURDIR)/.ci/apart"' ./gateway/datapath/ebpf

MINUTES ?= 60

soak: deps build ## gatewayd with 240 clients that come and go, and odd devices, for MINUTES=60: a line each minute; fails where memory grows
	go test -run '^$$' -bench Soak -benchtime 1x -vet=off -ldflags=-w -timeout $$(($(MINUTES) + 15))m -exec '$(ROOT) "$(CURDIR)/.ci/apart"' ./cmd/gatewayd -soak-for $(MINUTES)m -soak-program '$(CURDIR)/bin/gatewayd'

PREDECESSOR ?=

memory: deps build ## PSS of gatewayd with 100,000 sessions, and with 10,000 connections to the portal: PREDECESSOR=FILE of another one beside it
	go test -run '^$$' -bench Memory -benchtime 1x -vet=off -ldflags=-w -timeout 1h -exec '$(ROOT) "$(CURDIR)/.ci/apart"' ./cmd/gatewayd -memory-program '$(CURDIR)/bin/gatewayd' -predecessor '$(abspath $(PREDECESSOR))'

over-ssh: deps build ## quick on three machines reached by ssh beside quick in namespaces: ratios, noise floors, times, errors of window lengths; ten minutes
	go test -run '^$$' -bench QuickOverSSH -benchtime 1x -vet=off -ldflags=-w -timeout 1h -exec '$(ROOT) "$(CURDIR)/.ci/apart"' ./cmd/gateweigh -program '$(CURDIR)/bin/gateweigh'

PAIRS ?= 8

live-page: deps build ## the same run with the live page open in Chromium and closed, in turns, PAIRS=8: the ratio of CPU time with its interval
	go test -run '^$$' -bench WithLivePage -benchtime 1x -vet=off -ldflags=-w -timeout 1h -exec '$(ROOT) "$(CURDIR)/.ci/apart"' ./cmd/gateweigh -page-pairs $(PAIRS)

campaign: deps build ## campaigns: a lost node noticed by Slurm alone, 10,000 blocks of 100 nodes, three nodes against one; three minutes
	go test -count=1 -v -vet=off -ldflags=-w -timeout 10m -exec '$(ROOT) "$(CURDIR)/.ci/apart"' -run TestCampaignOnSlurm ./cmd/gateweigh -args -whole-campaign
	go test -run '^$$' -bench 'ThreeNodes|LargeCampaign|LargeReport' -benchtime 1x -vet=off -ldflags=-w -exec '$(ROOT) "$(CURDIR)/.ci/apart"' ./lab/campaign ./cmd/gateweigh

clean: ## remove what crashed runs left on the machine, and bin/
	if [ -x bin/gateweigh ]; then $(ROOT) bin/gateweigh clean; fi
	rm -rf bin
