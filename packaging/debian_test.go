package packaging

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// quickStart returns the quick start of docs/install.md: its commands, and the lines of configuration.
func quickStart(t *testing.T) (commands, lines []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/install.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Quick start\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(section, -1) {
		commands = append(commands, strings.TrimPrefix(m[1], "sudo "))
	}
	lines = regexp.MustCompile(`(?m)^\w+ = ".*"$`).FindAllString(section, -1)
	if len(commands) < 5 || len(lines) != 3 {
		t.Fatalf("commands %q, lines of configuration %q", commands, lines)
	}
	return commands, lines
}

// TestPackages: gatewayd's packages have what they should; the manual's quick start in an empty Debian, word by word;
// then the life of the package there.
func TestPackages(t *testing.T) {
	t.Parallel()
	former := pack(t, "v1.2.3", "gatewayd", "deb rpm apk ipk")
	checkAll(t, former)
	if *made != "" {
		checkMade(t, *made)
	}
	m := newMachine(t)
	m.copy(former + "/*.deb")
	commands, lines := quickStart(t)
	for _, command := range commands {
		if strings.HasPrefix(command, "gatewayd check-config") { // what stands above it is done
			m.configure(lines)
		}
		out := m.run(command)
		if strings.HasPrefix(command, "apt-get") && !strings.Contains(out, "systemctl enable --now gatewayd") {
			t.Errorf("the installation does not say the next step:\n%s", out)
		}
		t.Log(command + "\n" + out)
	}
	m.lease()
	if m.passes() {
		t.Fatal("a client passes that is not logged in")
	}
	m.logIn()
	m.awaitPasses()
	m.exposed()

	later := pack(t, "v1.3.0", "gatewayd", "deb")
	m.copy(later + "/*.deb")
	m.upgrade()
	m.refuse()
	m.bootClosed()
	m.removeAndPurge()
}

// exposed: systemd judges the services' rights as docs/install.md says.
func (m *machine) exposed() {
	m.t.Helper()
	page, err := os.ReadFile("../docs/install.md")
	must(m.t, err)
	said := regexp.MustCompile("`systemd-analyze security` says (\\S+) for `gatewayd.service`, (\\S+) for the guard").
		FindStringSubmatch(string(page))
	if said == nil {
		m.t.Fatal("docs/install.md says nothing of it")
	}
	for i, unit := range []string{"gatewayd.service", "gatewayd-guard.service"} {
		out := m.run("systemd-analyze security --no-pager --threshold=30 " + unit)
		if !strings.Contains(out, "Overall exposure level for "+unit+": "+said[i+1]+" OK") {
			last := out[strings.LastIndexByte(out, '\n')+1:]
			m.t.Errorf("the manual says %s for %s, and systemd %s", said[i+1], unit, last)
		}
	}
}

// upgrade: an admitted client's traffic goes on meanwhile, it stays logged in, and the configuration is kept.
func (m *machine) upgrade() {
	m.t.Helper()
	var said strings.Builder
	ping := exec.Command("ping", "-i", "0.02", serverAddr)
	ping.Stdout = &said
	must(m.t, m.client.Start(ping))
	const kept = "cksum /etc/gatewayd/gatewayd.toml; gatewayd sessions --state authenticated | grep -o '10[.]1[.][0-9.]*'"
	before := m.run(kept)
	m.run("apt-get install -y ./gatewayd_1.3.0_amd64.deb")
	if status := m.run("gatewayd status"); !strings.Contains(status, "v1.3.0") {
		m.t.Errorf("after the upgrade:\n%s", status)
	}
	if after := m.run(kept); after != before {
		m.t.Errorf("before the upgrade\n%s\nand after it\n%s", before, after)
	}
	must(m.t, ping.Process.Signal(os.Interrupt))
	must(m.t, ping.Wait())
	counts := regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`).FindStringSubmatch(said.String())
	if counts == nil {
		m.t.Fatalf("ping has written %s", said.String())
	}
	sent, _ := strconv.Atoi(counts[1])
	received, _ := strconv.Atoi(counts[2])
	if sent < 2 || received < sent-1 { // the last one may be on its way
		m.t.Errorf("of %d packets during the upgrade %d were answered\n%s", sent, received, m.journal())
	}
	m.t.Log(counts[0] + " during the upgrade")
}

// refuse: a version that refuses the configuration is not started, and the former one goes on. Where none runs it is
// not tried again and again; the mistakes are told, and at a removal what stays.
func (m *machine) refuse() {
	m.t.Helper()
	const pid = "systemctl show -P MainPID gatewayd"
	before := m.run(pid)
	m.run("cp /etc/gatewayd/gatewayd.toml kept; sed -i 's/click-through/knock/' /etc/gatewayd/gatewayd.toml")
	out := m.run("dpkg -i gatewayd_1.3.0_amd64.deb")
	if !strings.Contains(out, "refuses the configuration") || !strings.Contains(out, "knock") || m.run(pid) != before {
		m.t.Errorf("with a mistake in the configuration the upgrade says\n%s\nprocess %s before, %s after", out, before,
			m.run(pid))
	}
	m.run("! systemctl restart gatewayd; systemctl is-failed gatewayd") // and not: tried again
	out = m.run("touch /usr/local/bin/gatewayd; dpkg -i gatewayd_1.3.0_amd64.deb; rm /usr/local/bin/gatewayd")
	if !strings.Contains(out, "knock") || !strings.Contains(out, "/usr/local/bin/gatewayd, installed by hand") {
		m.t.Errorf("while it is stopped the upgrade says\n%s", out)
	}
	out = m.run("dpkg -r gatewayd; dpkg -i gatewayd_1.3.0_amd64.deb; cp kept /etc/gatewayd/gatewayd.toml")
	if !strings.Contains(out, "guard stay in the kernel") || !strings.Contains(out, "knock") {
		m.t.Errorf("with a mistake in the configuration the removal says\n%s", out)
	}
	m.run("systemctl restart gatewayd")
	m.awaitPasses()
}

// bootClosed: after a boot nothing is forwarded before gatewayd runs, although the machine forwards: gatewayd is held
// back, and then let go. Without the guard the same client passes.
func (m *machine) bootClosed() {
	m.t.Helper()
	const held = "/etc/systemd/system/gatewayd.service.d/held.conf"
	m.run("mkdir -p " + path.Dir(held) +
		"; printf '[Service]\nTimeoutStartSec=infinity\n" +
		"ExecStartPre=sh -c \"until [ -e /run/go ]; do sleep 0.1; done\"\n' >" + held)
	m.run("systemctl stop gatewayd gatewayd-guard; gatewayd detach; sync")
	m.space.Set(m.t, "ipv4/ip_forward", "1")
	m.awaitPasses() // the control: nothing holds this client back
	m.off()
	m.boot("systemctl is-active gatewayd-guard; systemctl show -P SubState gatewayd | grep -qx start-pre")
	if m.passes() {
		m.t.Error("a client passes before gatewayd runs")
	}
	m.run("systemctl show -P Before gatewayd-guard | grep -qw network-pre.target")
	m.run("touch /run/go; systemctl start gatewayd")
	m.awaitPasses()
	m.run("rm -r " + path.Dir(held) + "; systemctl daemon-reload")
}

// removeAndPurge: a removal leaves nothing in the kernel and keeps the configuration, with which the next installation
// starts the gateway; a purge leaves nothing.
func (m *machine) removeAndPurge() {
	m.t.Helper()
	const kernel = "ls -d /sys/fs/bpf/gatewayd*"
	m.run(kernel)
	m.run("apt-get remove -y gatewayd")
	rules := m.space.Run(m.t, "nft list ruleset")
	if out, err := m.try(kernel); err == nil || rules != "" {
		m.t.Errorf("the removal leaves %s and %s", out, rules)
	}
	m.run("cmp kept /etc/gatewayd/gatewayd.toml; ! systemctl is-active gatewayd; ls /var/lib/gatewayd")
	m.run("apt-get install -y ./gatewayd_1.3.0_amd64.deb; systemctl is-active gatewayd")
	m.awaitPasses() // the session is in the state, which is kept
	m.run("apt-get purge -y gatewayd")
	if left := m.run("find / -xdev -path '*gatewayd*' ! -path '/root/*' ! -path '/proc/*'"); left != "" {
		m.t.Errorf("the purge leaves %s", left)
	}
}

// configure takes the comment sign from lines of the configuration.
func (m *machine) configure(lines []string) {
	m.t.Helper()
	for _, line := range lines {
		m.run(`f=/etc/gatewayd/gatewayd.toml; grep -qxF '#` + line + `' $f; sed -i 's|^#\(` + line + `\)$|\1|' $f`)
	}
}
