// How the backend SSH gets the agent's program onto a machine, and starts a first agent there (the keeper).

package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// prepare starts the keeper on a machine. It takes the agent that is installed there, if that is of the lab's build.
// Otherwise it copies one into a temporary folder.
func (b *overSSH) prepare(ctx context.Context, m *machine) error {
	if err := m.checkSystem(); err != nil {
		return &HostError{m.Host, "address", err}
	}
	if m.facts.installed != "" {
		m.program = m.facts.installed
		h, err := b.start(ctx, m, keeperHost, nil)
		if m.keeper = h; err == nil {
			return m.checkRoot()
		}
		if !m.facts.root && m.facts.sudo != "yes" && m.facts.sudoAllowsAgent {
			return &HostError{m.Host, "address", &remedied{
				fmt.Sprintf("%v, and sudo on %s permits no other program than %s", err, m.Address, m.facts.installed),
				"install the agent there that was built with this lab: make agents"}}
		}
	}
	if err := m.checkRoot(); err != nil {
		return err
	}
	if m.facts.arch == "" {
		return &HostError{m.Host, "address", &remedied{
			fmt.Sprintf("there is no agent for its processor (%s)", m.facts.processor),
			"docs/agents.md lists those that there are"}}
	}
	if err := b.bring(ctx, m); err != nil {
		return &HostError{m.Host, "address", err}
	}
	return nil
}

// keeperHost is the host name of keepers.
const keeperHost = "keeper"

// checkSystem returns an error if the machine does not run Linux.
func (m *machine) checkSystem() error {
	if m.facts.system != "Linux" {
		return &remedied{fmt.Sprintf("%s runs %s, and agents need Linux", m.Address, m.facts.system),
			"name a machine with Linux"}
	}
	return nil
}

// checkRoot returns an error if the connection's user is not root and cannot start agents as root.
func (m *machine) checkRoot() error {
	key, what, remedy := "sudo", "", ""
	switch {
	case m.facts.root || m.facts.sudo == "yes" && m.Sudo != SudoNever || m.facts.sudoAllowsAgent:
		return nil
	case m.Sudo == SudoNever:
		what, remedy = "the connection is not root's, and a host needs root", "leave sudo out, or connect as root"
	case m.facts.sudo == "":
		key, what = "address", fmt.Sprintf("a host needs root, and %s has no sudo", m.Address)
		remedy = "connect as root (address = \"root@…\"), or install sudo"
	case strings.Contains(m.facts.sudo, "tty"):
		what = fmt.Sprintf("a host needs root, and sudo on %s wants a terminal (%s)", m.Address, m.facts.sudo)
		remedy = "permit it without: echo \"Defaults:$USER !requiretty\" | sudo tee -a /etc/sudoers.d/gateweigh"
	default:
		what = fmt.Sprintf("a host needs root, and sudo on %s wants a password (%s)", m.Address, m.facts.sudo)
		remedy = "permit it without: echo \"$USER ALL=(root) NOPASSWD: ALL\" | sudo tee /etc/sudoers.d/gateweigh"
	}
	return &HostError{m.Host, key, &remedied{what, remedy}}
}

// guardCommand is the shell command that starts a guard from the file program, by sudo if needed.
func (m *machine) guardCommand(program string, g agent.Guard) (string, error) {
	text, err := json.Marshal(g)
	if err != nil {
		return "", err
	}
	before := ""
	if m.Sudo == SudoAlways || !m.facts.root && m.Sudo != SudoNever && (m.facts.sudo == "yes" || m.facts.sudoAllowsAgent) {
		before = "sudo -n -- "
	}
	return before + program + " " + agent.GuardCommand + " " + quoted(string(text)) + ` "$SSH_CONNECTION"`, nil
}

// bringScript is a script for the machine's sh. It looks for a folder in which programs may run and which has KIB of
// space, makes a folder in it, and prints "ready". Then it stores BYTES bytes of its input there as FILE, prints the
// folder, runs the command GUARD, and removes the folder.
const bringScript = `
why=; f=;
for d in "$TMPDIR" /dev/shm /tmp /var/tmp "$HOME"; do
[ -n "$d" ] && [ -d "$d" ] && [ -w "$d" ] || continue;
f=$(mktemp -d "$d/gateweigh-XXXXXX" 2>/dev/null) || { why="$why $d is full or cannot be written to;"; f=; continue; };
set -- $(df -Pk "$f" | tail -n 1);
if [ "$4" -lt KIB ]; then why="$why $d has $4 KiB free of KIB;"; rm -rf "$f"; f=; continue; fi;
if { echo "#!/bin/sh"; } >"$f/FILE.new" && chmod 755 "$f/FILE.new" && "$f/FILE.new" 2>/dev/null; then break; fi;
why="$why $d is full, or no program may run there (noexec);"; rm -rf "$f"; f=;
done;
if [ -z "$f" ]; then echo "no place for the agent:$why make room, or have TMPDIR name another folder" >&2; exit 1; fi;
limit=; command -v timeout >/dev/null && limit="timeout 600";
echo ready;
$limit head -c BYTES >"$f/FILE.new";
if [ "$(wc -c <"$f/FILE.new")" -ne BYTES ]; then echo "the agent was brought in part only" >&2; rm -rf "$f"; exit 1; fi;
mv "$f/FILE.new" "$f/FILE"; program=$f/FILE; echo "$f"; GUARD; s=$?; rm -rf "$f"; exit $s`

// bring copies the agent's program to a machine and starts the keeper from it.
func (b *overSSH) bring(ctx context.Context, m *machine) error {
	file, err := programFor(m.facts.arch)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	command, err := m.guardCommand(`"$program"`, agent.Guard{Agent: agent.Options{
		Run: b.Run, Host: keeperHost, Patience: silenceLimit}})
	if err != nil {
		return err
	}
	script := strings.NewReplacer("KIB", fmt.Sprint(info.Size()>>10+64), "BYTES", fmt.Sprint(info.Size()), "FILE",
		agent.ProgramFile, "GUARD", command).Replace(bringScript)
	log, dir, err := b.log(m.Host + "-" + keeperHost)
	if err != nil {
		return err
	}
	p, err := m.connection.start(script, log)
	if err != nil {
		return err
	}
	folder, err := handOver(ctx, p, file)
	if err != nil {
		if how := p.ended(); how != "" {
			err = explained(how, p.messages.String(), m.Address)
		}
		p.input.Close()
		return fmt.Errorf("bringing the agent to %s: %w", m.Address, errors.Join(err, p.end(endTimeout)))
	}
	m.program = filepath.Join(folder, agent.ProgramFile)
	m.keeper, err = m.connectAgent(ctx, p, keeperHost, dir)
	return err
}

// handOver sends a file to bringScript, and returns the folder in which the script has put it.
func handOver(ctx context.Context, p *process, file io.Reader) (folder string, err error) {
	defer context.AfterFunc(ctx, p.kill)()
	line := func() (string, error) { // it reads single bytes, because all after the line is the agent's output
		var text []byte
		for one := make([]byte, 1); ; {
			if _, err := io.ReadFull(p.output, one); err != nil {
				return "", err
			}
			if one[0] == '\n' {
				return string(text), nil
			}
			text = append(text, one[0])
		}
	}
	if ready, err := line(); err != nil || ready != "ready" {
		return "", errors.Join(err, fmt.Errorf("it says %q", ready))
	}
	if _, err := io.Copy(p.input, file); err != nil {
		return "", err
	}
	return line()
}

// programFor opens the agent's program for an architecture (GOARCH), as "make agents" makes it. For this machine's
// architecture it can be this program.
func programFor(arch string) (*os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(self), "agents", agent.ProgramFile+"-"+arch)
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && arch == runtime.GOARCH {
		return os.Open("/proc/self/exe")
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("its processor is %s, and %s is not there: make agents", arch, path)
	}
	return f, err
}
