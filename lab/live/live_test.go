package live_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/live"
	"github.com/gateweigh/gateweigh/lab/result"
)

// simulated makes a run that began so many hours after the first one.
func simulated(experiment string, hour int) result.Run {
	run := analysistest.Run(analysistest.Spec{
		Seed: uint64(hour), DUTs: []analysistest.DUT{{Name: "opennds", Ratio: 2.2}, {Name: "ebpf", Ratio: 0.9}},
		Clients: []int{20}, Offered: []float64{100, 500}, Blocks: 4, Windows: 2, AABlocks: 2, BlockSD: 0.02, WindowSD: 0.02,
		RejectEvery: 9,
	})
	env := &run.Environment
	env.Experiment, env.Measure, env.Title = experiment, "cost", "Two gateways"
	env.Start = env.Start.Add(time.Duration(hour) * time.Hour)
	env.End = env.Start.Add(3 * time.Minute)
	return run
}

func write(t *testing.T, dir string, run result.Run) {
	t.Helper()
	if err := analysistest.Write(dir, run); err != nil {
		t.Fatal(err)
	}
}

// begin writes the first blocks of a run that goes on, as the run of this process.
func begin(t *testing.T, dir string, run result.Run, blocks int) {
	t.Helper()
	part := run
	part.Environment.End, part.Environment.Interrupted = time.Time{}, true
	part.Blocks = run.Blocks[:blocks]
	part.Trials = nil
	for _, trial := range run.Trials {
		for _, b := range part.Blocks {
			if !trial.Start.Before(b.Start) && trial.Start.Before(b.Start.Add(time.Duration(b.Seconds*float64(time.Second)))) {
				part.Trials = append(part.Trials, trial)
			}
		}
	}
	fresh := t.TempDir()
	write(t, fresh, part)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{result.TrialsFile, result.EnvironmentFile} { // readers never see half a file
		if err := os.Rename(filepath.Join(fresh, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	share := float64(blocks) / float64(len(run.Blocks))
	p := result.Progress{Process: result.ThisProcess(), Updated: time.Now().UTC(), Doing: "opennds, block 2", Done: share,
		Left: 754 * (1 - share), Blocks: len(run.Blocks), Behind: blocks, Windows: 40, Accepted: int(40 * share), Rejected: 3,
		Reason: "generator at 84 % of a core, limit 80 %"}
	if err := result.WriteProgress(dir, p); err != nil {
		t.Fatal(err)
	}
}

func serve(t *testing.T, cfg live.Config) *httptest.Server {
	t.Helper()
	cfg.PollInterval, cfg.ReportInterval = 20*time.Millisecond, time.Millisecond
	s, err := live.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections() // pages keep streams open
		server.Close()
	})
	return server
}

// get requests a page and returns its status and text. It checks the headers that all pages have.
func get(t *testing.T, server *httptest.Server, address string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	answer, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"X-Frame-Options": "DENY", "Cache-Control": "no-store"} {
		if answer.Header.Get(name) != want {
			t.Errorf("%s: %s is %q", address, name, answer.Header.Get(name))
		}
	}
	if p := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'") ||
		strings.Contains(p, "script-src 'unsafe") {
		t.Errorf("%s: policy %q", address, p)
	}
	return answer.StatusCode, string(body)
}

// TestPages requests every page of a folder with runs in all states. Long: one line an address.
func TestPages(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	write(t, at("first"), simulated("quick", 1))
	write(t, at("second & third/6.1.0"), simulated("quick", 2))
	begin(t, at("grows"), simulated("quick", 3), 6)
	begin(t, at("begun"), simulated("quick", 4), 0)
	begin(t, at("killed"), simulated("quick", 5), 3)
	if err := result.WriteProgress(at("killed"), result.Progress{Process: result.Process{PID: 1, Ticks: 1,
		Boot: result.ThisProcess().Boot, Space: result.ThisProcess().Space}, Done: 0.3}); err != nil {
		t.Fatal(err)
	}
	write(t, at("damaged"), simulated("quick", 6))
	write(t, at("torn"), simulated("quick", 7))
	for name, text := range map[string]string{"damaged": "{}\n", "torn": `{"version":1,"kind":"tri`} {
		f, err := os.OpenFile(at(name+"/"+result.TrialsFile), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	writeCampaign(t, at("nodes"))
	server := serve(t, live.Config{Dir: root})
	for _, tt := range []struct {
		address string
		status  int
		want    []string
		without string
	}{
		{"/", 200, []string{"7 runs", "2 going on", "1 broken off", "60 %", "left", "Now: opennds, block 2.",
			"Example CPU at 2.40 GHz", "/run?run=second&#43;%26&#43;third%2F6.1.0", "/trend?experiment=quick"}, ""},
		{"/?search=torn", 200, []string{"1 run of 7"}, "run?run=first"},
		{"/?state=broken+off&experiment=quick", 200, []string{"run?run=killed"}, "run?run=first"},
		{"/?experiment=none", 200, []string{"No run is like that."}, ""},
		{"/?from=-7", 200, []string{"run?run=first"}, ""},
		{"/?from=900", 200, []string{"run?run=first"}, ""},
		{"/run?run=first", 200, []string{"What it costs", "opennds", "/page.css", "/live.js"}, `id="progress"`},
		{"/run?run=second+%26+third%2F6.1.0", 200, []string{"What it costs"}, ""},
		{"/run?run=grows", 200, []string{`aria-valuenow="60"`, "What it costs", "Rejected so far: 2 × generator at ",
			"The last 6 records"}, "The run was interrupted"},
		{"/run?run=begun", 200, []string{"Nothing is recorded yet"}, ""},
		{"/run?run=killed", 200, []string{"Broken off", "gateweigh run --resume ", "The run was interrupted"}, "Now: "},
		{"/run?run=torn", 200, []string{"What it costs"}, ""},
		{"/run?run=damaged", 422, []string{"trials.jsonl:", "no version"}, ""},
		{"/run?run=../../etc", 404, []string{"There is no run of the name"}, ""},
		{"/run?run=%3Cscript%3E", 404, []string{"&lt;script&gt;"}, "<script>\""},
		{"/run", 404, []string{"No such run"}, ""},
		{"/compare?run=torn&run=first", 200, []string{"torn over first", "The other way round"}, ""},
		{"/compare?run=torn&run=first&as=given", 200, []string{"first over torn"}, ""},
		{"/compare?run=grows&run=first", 200, []string{"grows over first"}, ""},
		{"/compare?run=first", 400, []string{"Choose two runs"}, ""},
		{"/compare?run=first&run=first", 400, []string{"Choose two runs"}, ""},
		{"/compare?run=first&run=gone", 404, []string{"No such run"}, ""},
		{"/compare?run=first&run=damaged", 422, []string{"no version"}, ""},
		{"/trend", 200, []string{"quick", "5 runs"}, ""},
		{"/trend?experiment=quick", 200, []string{"quick, its course", "<svg", "Left out", "no version"}, ""},
		{"/trend?experiment=quick&metric=nothing", 422, []string{"no metric is called"}, ""},
		{"/trend?experiment=none", 422, []string{"No course"}, ""},
		{"/campaign", 200, []string{"nodes", "1 of 4 shares done", "1 running", "1 failed", "n2", "the device left"}, ""},
		{"/campaign?campaign=nodes", 200, []string{"quick (8 blocks)", "quick 2"}, ""},
		{"/campaign?campaign=../nodes", 404, []string{"There is no campaign"}, ""},
		{"/page.css", 200, []string{"--page"}, ""},
		{"/live.js", 200, []string{"EventSource"}, ""},
		{"/metrics", 200, []string{`gateweigh_runs{state="finished"} 4`,
			`gateweigh_run_progress_ratio{experiment="quick",run="grows"} 0.6`,
			`gateweigh_run_trials_rejected{experiment="quick",run="grows"} 3`}, "killed"},
		{"/etc/passwd", 404, nil, ""},
	} {
		status, body := get(t, server, tt.address)
		if status != tt.status {
			t.Errorf("%s: status %d, want %d: %.200s", tt.address, status, tt.status, body)
		}
		for _, want := range tt.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q", tt.address, want)
			}
		}
		if tt.without != "" && strings.Contains(body, tt.without) {
			t.Errorf("%s has %q", tt.address, tt.without)
		}
	}
	if status, _ := get(t, server, "/", "Host", "evil.example"); status != http.StatusForbidden {
		t.Errorf("by another name: %d", status)
	}
	if answer, err := server.Client().Post(server.URL+"/", "text/plain", nil); err != nil || answer.StatusCode != 405 {
		t.Errorf("POST: %v, %v", answer, err)
	}
}

// writeCampaign writes a campaign's folder in which some shares are done, one has failed and one is running.
func writeCampaign(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{
		"campaign.json": `{"version":1,"id":"x","begun":"2026-01-01T00:00:00Z",
			"parts":[{"name":"quick","shares":4,"blocks":8}]}`,
		"blocks/quick/00000-0/attempt.json": `{"node":"n1"}`, "blocks/quick/00000-0/end.json": `{"accepted":4}`,
		"blocks/quick/00001-0/attempt.json": `{"node":"n2"}`,
		"blocks/quick/00001-0/end.json":     `{"error":"the device left"}`,
		"blocks/quick/00002-0/attempt.json": `{"node":"n2"}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNothingIsWritten: requests change nothing in the folder, and leave no lock on the run.
func TestNothingIsWritten(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "grows")
	run := simulated("quick", 1)
	begin(t, dir, run, 5)
	before := listing(t, root)
	server := serve(t, live.Config{Dir: root})
	for _, address := range []string{"/", "/run?run=grows", "/trend", "/metrics", "/compare?run=grows&run=grows"} {
		get(t, server, address)
	}
	if now := listing(t, root); now != before {
		t.Errorf("the folder has changed:\n%s\nbefore:\n%s", now, before)
	}
	w, _, err := result.OpenWriter(dir) // fails when another process has the lock
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

func listing(t *testing.T, root string) (text string) {
	t.Helper()
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			text += fmt.Sprintf("%s %v %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestEvents follows a run's events while it grows and until it is deleted.
func TestEvents(t *testing.T) {
	root := t.TempDir()
	dir, run := filepath.Join(root, "grows"), simulated("quick", 1)
	begin(t, dir, run, 2)
	server := serve(t, live.Config{Dir: root})
	answer, err := server.Client().Get(server.URL + "/events?run=grows")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("type %q", kind)
	}
	lines := bufio.NewReader(answer.Body)
	// wait reads until each event has come with its data, in any order: the server may read the folder after one file has
	// changed and before the other.
	wait := func(events map[string]string) {
		t.Helper()
		for seen := ""; len(events) > 0; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("no events %v: %v", events, err)
			}
			if name, is := strings.CutPrefix(line, "event: "); is {
				seen = strings.TrimSpace(name)
			}
			if data, is := events[seen]; is && strings.HasPrefix(line, "data:") && strings.Contains(line, data) {
				delete(events, seen)
			}
		}
	}
	wait(map[string]string{"status": `aria-valuenow="20"`, "changed": ""})
	begin(t, dir, run, 6)
	wait(map[string]string{"status": `aria-valuenow="60"`, "changed": ""})
	if _, body := get(t, server, "/run?run=grows"); !strings.Contains(body, `aria-valuenow="60"`) {
		t.Error("the page does not have what the event said")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wait(map[string]string{"gone": ""})
	if _, err := lines.ReadString(0); err != io.EOF {
		t.Errorf("the stream goes on: %v", err)
	}
	if status, body := get(t, server, "/run?run=grows"); status != 404 {
		t.Errorf("a deleted run: %d %.100s", status, body)
	}
}

// TestToken: without the token the server answers only with styles and scripts, and the cookie does not contain the
// token. Long: each kind of request takes some lines.
func TestToken(t *testing.T) {
	root, token := t.TempDir(), "correct horse battery"
	write(t, filepath.Join(root, "secret"), simulated("quick", 1))
	server := serve(t, live.Config{Dir: root, Token: token})
	for _, address := range []string{"/", "/run?run=secret", "/metrics", "/events", "/trend", "/x.css?run=secret"} {
		for _, headers := range [][]string{nil, {"Authorization", "Bearer correct horse batterx"}, {"Cookie", "gateweigh="},
			{"Cookie", "gateweigh=" + token}, {"Accept", "text/html"}} {
			if status, body := get(t, server, address, headers...); status == 200 || strings.Contains(body, "secret") {
				t.Errorf("%s with %v: %d %.80s", address, headers, status, body)
			}
		}
	}
	if status, body := get(t, server, "/", "Authorization", "Bearer "+token); status != 200 ||
		!strings.Contains(body, "secret") {
		t.Errorf("with the token: %d", status)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	post := func(token string, headers ...string) *http.Response {
		request, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, server.URL+"/login", strings.NewReader("token="+token))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
	if answer := post("wrong"); answer.StatusCode != http.StatusUnauthorized || len(answer.Cookies()) > 0 {
		t.Errorf("a wrong token: %d", answer.StatusCode)
	}
	if answer := post(token, "Sec-Fetch-Site", "cross-site"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %d", answer.StatusCode)
	}
	answer := post(strings.ReplaceAll(token, " ", "+"))
	if answer.StatusCode != http.StatusSeeOther || len(answer.Cookies()) != 1 {
		t.Fatalf("the token: %d, %v", answer.StatusCode, answer.Cookies())
	}
	c := answer.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, "horse") {
		t.Errorf("cookie: %+v", c)
	}
	if status, _ := get(t, server, "/", "Cookie", c.Name+"="+c.Value); status != 200 {
		t.Errorf("with the cookie: %d", status)
	}
}
