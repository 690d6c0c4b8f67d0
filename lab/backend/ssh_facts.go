// What the backend SSH learns about a machine when it connects, and what ssh's errors mean.

package backend

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// facts are what a script finds out about a machine before an agent runs there.
type facts struct {
	system          string // uname -s
	arch            string // GOARCH; empty: there is no agent for the processor
	processor       string // uname -m
	root            bool   // the connection's user is root
	sudo            string // "yes": sudo needs no password; else sudo's message; empty: there is no sudo
	boot            string // id of the machine's current boot
	netns           string // its network namespace
	installed       string // file of an agent on PATH; may be empty
	sudoAllowsAgent bool   // sudo starts that file without a password
	connection      string // the value that sshd sets for SSH_CONNECTION
}

// factsScript prints the facts. Then it stays until the connection ends, because other commands use its connection.
// For root it does not try sudo: where sudo cannot look up the machine's name, it waits for long.
const factsScript = `
echo "connection=$SSH_CONNECTION"; echo "system=$(uname -s)"; echo "processor=$(uname -m)"; echo "user=$(id -u)";
echo "order=$(dd if=/proc/self/exe bs=1 skip=5 count=1 2>/dev/null | tr "\001\002" lb)";
echo "boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"; echo "netns=$(readlink /proc/self/ns/net)";
a=$(PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin command -v gateweigh-agent); echo "installed=$a";
if [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null; then s=$(sudo -n true 2>&1 </dev/null) && s=yes;
echo "sudo=$(echo "${s:-it does not say why}" | tail -n 1)"; fi;
[ -n "$a" ] && [ "$(id -u)" -ne 0 ] && command -v sudo >/dev/null &&
sudo -n -l "$a" >/dev/null 2>&1 </dev/null && echo "allowed=yes";
echo end; exec cat >/dev/null`

// readFacts reads the output of factsScript.
func readFacts(r io.Reader) (f facts, err error) {
	lines := bufio.NewScanner(r)
	order := ""
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		key, value, _ := strings.Cut(line, "=")
		switch key {
		case "end":
			f.arch = archOf(f.processor, order)
			return f, nil
		case "system":
			f.system = value
		case "processor":
			f.processor = value
		case "user":
			f.root = value == "0"
		case "order":
			order = value
		case "connection":
			f.connection = value
		case "boot":
			f.boot = value
		case "netns":
			f.netns = value
		case "installed":
			f.installed = value
		case "sudo":
			f.sudo = value
		case "allowed":
			f.sudoAllowsAgent = value == "yes"
		}
	}
	if err = lines.Err(); err == nil {
		err = io.ErrUnexpectedEOF
	}
	return f, err
}

// archOf returns the GOARCH of a processor as uname -m names it; empty: there is no agent for it. order is "l" for a
// little-endian and "b" for a big-endian processor.
func archOf(processor, order string) string {
	switch {
	case processor == "x86_64" || processor == "amd64":
		return "amd64"
	case processor == "aarch64" || processor == "arm64":
		return "arm64"
	case strings.HasPrefix(processor, "armv"):
		return "arm"
	case processor == "i386" || processor == "i586" || processor == "i686":
		return "386"
	case strings.HasPrefix(processor, "mips") && order == "l":
		return "mipsle"
	case strings.HasPrefix(processor, "mips"):
		return "mips"
	case processor == "riscv64":
		return "riscv64"
	}
	return ""
}

// explained returns the reason why ssh ended, with what to do about it. reason is used where the messages of ssh tell
// no better one.
func explained(reason, messages, address string) error {
	printed := func(text string) bool { return strings.Contains(messages, text) }
	remedy := ""
	switch {
	case printed("REMOTE HOST IDENTIFICATION HAS CHANGED"):
		reason = "its host key has changed: it was installed anew, or something else answers"
		remedy = "once you know which, `ssh-keygen -R` with its name, and connect once by hand: ssh " + address
	case printed("Host key verification failed"), printed("host key is known"):
		reason, remedy = "its host key is not known yet", "connect once by hand and look at it: ssh "+address
	case printed("Permission denied"):
		remedy = "its sshd takes none of your keys, and the lab never asks for a password: ssh-copy-id " + address +
			", or name the key in ~/.ssh/config (IdentityFile)"
	case printed("Could not resolve hostname"):
		remedy = "name it in ~/.ssh/config (Host, HostName), or give its IP address"
	case printed("Connection refused"):
		remedy = "no sshd listens there: start it (apt-get install openssh-server)"
	case printed("timed out"), printed("No route to host"), printed("Network is unreachable"):
		remedy = "it is not reached: is it on, and is the address right?"
	case printed("Too many authentication failures"):
		remedy = "name the one key in ~/.ssh/config: IdentityFile, IdentitiesOnly yes"
	case printed("open failed"), printed("Session open refused"):
		remedy = "its sshd allows too few sessions a connection: MaxSessions 10 or more in sshd_config"
	}
	if remedy == "" {
		return errors.New(reason)
	}
	return &remedied{reason, remedy}
}

// remedied is an error with its remedy: what the user can do about it.
type remedied struct{ what, remedy string }

func (r *remedied) Error() string { return r.what + ": " + r.remedy }

// Remedy splits an error about a machine into what is wrong and what to do about it. The remedy is empty if none is
// known.
func Remedy(err error) (what, remedy string) {
	if r, found := errors.AsType[*remedied](err); found {
		return strings.TrimSuffix(err.Error(), ": "+r.remedy), r.remedy
	}
	return err.Error(), ""
}
