// Package prometheustest starts a real Prometheus for tests, and asks it the queries of dashboards.
package prometheustest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Server is a Prometheus that scrapes one target each second. It ends with the test.
type Server struct {
	address string
	run     func(func()) // where it is
}

// listening is the address in Prometheus's log.
var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// Start starts a Prometheus that scrapes target, an address and port. where runs a function in the network in which
// both are, and enter are words that begin a command there; none: this one.
func Start(t testing.TB, target string, where func(func()), enter ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`global: {scrape_interval: 1s}
scrape_configs:
  - job_name: test
    static_configs: [{targets: ["%s"]}]
`, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	words := append(enter, "prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path",
		filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:0", "--log.format", "logfmt")
	cmd := exec.Command(words[0], words[1:]...)
	logged, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := netnstest.Start(cmd); err != nil {
		t.Fatalf("starting prometheus (package prometheus): %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var said strings.Builder
	for lines := bufio.NewScanner(logged); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			go io.Copy(io.Discard, logged) // so that the log does not block the server
			return &Server{m[1], where}
		}
	}
	t.Fatalf("prometheus ended:\n%s", said.String())
	return nil
}

// Ask returns the number of series of a query's answer.
func (s *Server) Ask(query string) (series int, err error) {
	dial := func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		s.run(func() { c, err = (&net.Dialer{}).DialContext(ctx, network, s.address) })
		return c, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	answer, err := client.Get("http://" + s.address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var body struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return 0, err
	}
	if body.Error != "" {
		return 0, errors.New(body.Error)
	}
	return len(body.Data.Result), nil
}

// variables are what Grafana puts in place of the variables of a dashboard.
var variables = strings.NewReplacer("$instance", ".*", "$__rate_interval", "5s")

// AwaitData waits until each query of a dashboard, a file, has an answer with data.
func (s *Server) AwaitData(t testing.TB, path string) {
	t.Helper()
	queries := queriesOf(t, path)
	if len(queries) == 0 {
		t.Fatalf("%s has no query", path)
	}
	netnstest.Await(t, "data for each query of "+path, func() error {
		var empty []error
		for _, q := range queries {
			switch n, err := s.Ask(variables.Replace(q)); {
			case err != nil:
				empty = append(empty, fmt.Errorf("%s: %w", q, err))
			case n == 0:
				empty = append(empty, fmt.Errorf("%s: no data", q))
			}
		}
		return errors.Join(empty...)
	})
}

// queriesOf returns the expressions of a dashboard.
func queriesOf(t testing.TB, path string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &page); err != nil {
		t.Fatal(err)
	}
	for _, p := range page.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}
