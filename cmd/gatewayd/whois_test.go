package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWhois: with the flow log enabled, the command names the user of a connection through the
// gateway, while it runs and after it was killed.
func TestWhois(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.Dir, "gatewayd.toml")
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(text, "\n[flowlog]\nenabled = true\n"...), 0o600))
	w.start()
	ann := w.client()
	ann.logIn("ann")
	from := w.transfer(ann, 1000)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	whois := func() error {
		out, err := w.try(fmt.Sprintf("gatewayd whois --folder $DIR/state/flows %s --at %s", from, at))
		if err == nil && (!strings.Contains(out, "ann") || !strings.Contains(out, serverAddr.String())) {
			err = fmt.Errorf("whois says %q", out)
		}
		return err
	}
	eventually(t, "whois", whois)
	w.kill()
	must(t, whois())
	if out := w.sh("nsenter --net=/run/netns/$ID-router gatewayd detach -c $DIR/gatewayd.toml >/dev/null; nsenter --net=/run/netns/$ID-router nft list ruleset"); strings.Contains(out, "gatewayd-flows") {
		t.Errorf("after detach there is still\n%s", out)
	}
}
