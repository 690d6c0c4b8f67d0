package transfer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
)

// Folders of the FTP server on its host.
var (
	ftpDir  = path.Join(agent.Scratch, "ftp")
	ftpRoot = path.Join(ftpDir, "files")
)

const (
	ftpName  = "proftpd"
	fileName = "file"
)

// ftpConfig is proftpd's configuration: anonymous logins, without look-ups of names or users. It takes ftpDir.
const ftpConfig = `ServerType standalone
Port 21
UseIPv6 off
User root
Group root
UseReverseDNS off
UseFtpUsers off
RequireValidShell off
AuthOrder mod_auth_unix.c
ScoreboardFile none
PidFile %[1]s/proftpd.pid
SystemLog %[1]s/proftpd.log
DelayEngine off
WtmpLog off
TransferLog none
MaxInstances none
<Anonymous %[1]s/files>
  User nobody
  Group nogroup
  UserAlias anonymous nobody
  RequireValidShell off
</Anonymous>
`

// serve starts proftpd with a file of the given size in bytes, and returns once it listens. The server ends with the
// host.
func serve(ctx context.Context, server *backend.Host, bytes int64) error {
	prepare := agent.Command{
		Argv: []string{"sh", "-ec", `mkdir -p "$1"; chmod 755 "$1"; head -c "$2" /dev/zero >"$1/$3"; chmod 644 "$1/$3"`, "sh",
			ftpRoot, fmt.Sprint(bytes), fileName}, Support: true,
	}
	conf := path.Join(ftpDir, "proftpd.conf")
	_, err := server.Run(ctx, prepare)
	if err == nil {
		err = server.WriteFile(ctx, conf, fmt.Appendf(nil, ftpConfig, ftpDir), 0o644)
	}
	if err == nil {
		err = server.Spawn(
			ctx, agent.Command{Name: ftpName, Argv: []string{"proftpd", "-n", "-c", conf}, Support: true, Abrupt: true})
	}
	if err != nil {
		return fmt.Errorf("preparing the FTP server: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it does not listen after a minute"))
	defer cancel()
	for {
		if _, err = server.Run(
			ctx, agent.Command{Argv: []string{"sh", "-c", "ss -Hlnt 'sport = :21' | grep -q ."}, Support: true}); err == nil {
			return nil
		}
		list, err := server.Programs(ctx)
		if err != nil {
			return fmt.Errorf("starting the FTP server: %w", err)
		}
		for _, p := range list {
			if p.Name == ftpName && p.Ended {
				return fmt.Errorf("the FTP server ended while starting, %s: %s", p.Status, p.Output)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("starting the FTP server: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// fetchArgs returns the curl command with which a client fetches the file several times over one login, from its
// address. A transfer that takes longer than most fails, and ends the command. For each transfer, curl prints its
// bytes, its seconds including the time before it began, and the seconds before it began.
func fetchArgs(from, server netip.Addr, times int, most time.Duration) []string {
	args := []string{
		"curl", "-sS", "--fail-early", "--interface", from.String(), "--connect-timeout", "60", "--max-time",
		fmt.Sprint(int(most.Seconds()) + 1),
		"-w", `%{size_download} %{time_total} %{time_pretransfer}\n`,
	}
	for range times {
		args = append(args, "-o", "/dev/null", fmt.Sprintf("ftp://%s/%s", server, fileName))
	}
	return args
}

// fetch has a client fetch the file several times. num is its number among its host's clients, from 1. If clients share
// the host's namespace, nothing but the address from tells them apart. A failed transfer is in Fetched.Problem.
func fetch(ctx context.Context, h *backend.Host, num int, shared bool, from, server netip.Addr, times int, bytes int64,
	most time.Duration) (Fetched, error) {
	cmd := agent.Command{
		Argv: fetchArgs(from, server, times, most), Timeout: time.Duration(times)*most + time.Minute, Support: true}
	if !shared {
		cmd.Client = num
	}
	start := time.Now()
	out, err := h.Run(ctx, cmd)
	f := Fetched{Seconds: time.Since(start).Seconds()}
	if ctx.Err() != nil {
		return f, context.Cause(ctx)
	}
	if err != nil {
		f.Problem = agent.LastLines(out.Stderr)
		if f.Problem == "" {
			f.Problem = err.Error()
		}
	}
	return f, f.read(out.Stdout, bytes)
}

// read adds the transfers from curl's output. Only transfers of the whole file, in bytes, count in Each.
func (f *Fetched) read(text string, bytes int64) error {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var values [3]float64
		fields := strings.Fields(lines.Text())
		if len(fields) != len(values) {
			return fmt.Errorf("curl printed %q, not bytes and seconds", lines.Text())
		}
		for i, field := range fields {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return fmt.Errorf("curl printed %q: %w", lines.Text(), err)
			}
			values[i] = v
		}
		f.Attempts++
		f.Bytes += int64(values[0])
		if int64(values[0]) == bytes {
			f.Each = append(f.Each, values[1]-values[2])
		}
	}
	return nil
}
