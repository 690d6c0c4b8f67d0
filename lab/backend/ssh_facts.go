package backend

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// facts are what a machine says of itself before an agent runs there.
type facts struct {
	system    string // uname -s
	arch      string // GOARCH; empty: of none that there are agents for
	processor string // uname -m
	root      bool   // the connection is root's
	sudo      string // "yes": without a password, else what sudo says; empty: there is none
	boot      string // id of this boot of the machine
	netns     string // its network namespace
	installed string // file of an agent on PATH; may be empty
	allowed   bool   // sudo lets that be started without a password
	// connection is what sshd calls SSH_CONNECTION.
	connection string
}

// factsScript prints the facts, and stays until the connection ends: with it other commands share the connection.
// Root is not asked about sudo, which waits for a resolver where it does not know the machine's name.
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

// readFacts reads what factsScript prints.
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
			f.allowed = value == "yes"
		}
	}
	if err = lines.Err(); err == nil {
		err = io.ErrUnexpectedEOF
	}
	return f, err
}

// archOf is the GOARCH of a processor as uname -m names it. order is "l" or "b" for the order of bytes.
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

// explained is why ssh ended, with what to do about it. said is the end of all that it said.
func explained(how, said, address string) error {
	does := func(text string) bool { return strings.Contains(said, text) }
	remedy := ""
	switch {
	case does("REMOTE HOST IDENTIFICATION HAS CHANGED"):
		how = "its host key has changed: it was installed anew, or something else answers"
		remedy = "once you know which, `ssh-keygen -R` with its name, and connect once by hand: ssh " + address
	case does("Host key verification failed"), does("host key is known"):
		how, remedy = "its host key is not known yet", "connect once by hand and look at it: ssh "+address
	case does("Permission denied"):
		remedy = "its sshd takes none of your keys, and the lab never asks for a password: ssh-copy-id " + address +
			", or name the key in ~/.ssh/config (IdentityFile)"
	case does("Could not resolve hostname"):
		remedy = "name it in ~/.ssh/config (Host, HostName), or give its IP address"
	case does("Connection refused"):
		remedy = "no sshd listens there: start it (apt-get install openssh-server)"
	case does("timed out"), does("No route to host"), does("Network is unreachable"):
		remedy = "it is not reached: is it on, and is the address right?"
	case does("Too many authentication failures"):
		remedy = "name the one key in ~/.ssh/config: IdentityFile, IdentitiesOnly yes"
	case does("open failed"), does("Session open refused"):
		remedy = "its sshd allows too few sessions a connection: MaxSessions 10 or more in sshd_config"
	}
	if remedy == "" {
		return errors.New(how)
	}
	return &remedied{how, remedy}
}

// remedied is an error with what to do about it.
type remedied struct{ what, remedy string }

func (r *remedied) Error() string { return r.what + ": " + r.remedy }

// Remedy parts an error of a machine in what is wrong and what to do about it; empty where that is not known.
func Remedy(err error) (what, remedy string) {
	if r, is := errors.AsType[*remedied](err); is {
		return strings.TrimSuffix(err.Error(), ": "+r.remedy), r.remedy
	}
	return err.Error(), ""
}
