package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// proftpd asks for the user of each connection, and logs what it is told.
const proftpd = `ServerType standalone
Port 21
UseIPv6 off
User root
Group root
LoadModule mod_ident.c
IdentLookups on
UseReverseDNS off
RequireValidShell off
ScoreboardFile none
PidFile %[1]s/proftpd.pid
DelayEngine off
LogFormat ident "%%a %%l"
ExtendedLog %[1]s/asked.log AUTH ident
SystemLog %[1]s/proftpd.log
`

// TestIdent: proftpd's log names the users of two clients, by both methods, although one of them
// runs a server of its own that lies.
func TestIdent(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"nat", "masquerade"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			path := filepath.Join(w.Dir, "gatewayd.toml")
			text, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, append(text, "\n[ident]\nenabled = true\nmethod = \""+method+"\"\n"...), 0o600))
			if method == "masquerade" {
				w.sh(`nsenter --net=/run/netns/$ID-router nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; add rule ip nat post oifname wan0 ip saddr 10.1.0.0/24 masquerade'`)
			}
			conf := filepath.Join(w.Dir, "proftpd.conf")
			must(t, os.WriteFile(conf, fmt.Appendf(nil, proftpd, w.Dir), 0o600))
			w.spawnAt("server", "proftpd.out", "proftpd", "-n", "-c", conf)
			w.start()
			ann, fixed := w.client(), w.client()
			ann.logIn("ann")
			fixed.logIn("frugal")
			w.spawnAt(ann.host, "liar.log", "busybox", "nc", "-lk", "-p", "113", "-e", "/bin/echo", "1 , 1 : USERID : UNIX : liar")
			for _, user := range []struct {
				c    *client
				name string
			}{{ann, "ann"}, {fixed, "frugal"}} {
				eventually(t, user.name+" is named", func() error {
					user.c.try("curl -s --max-time 30 ftp://nobody:wrong@192.0.2.2/")
					said, err := os.ReadFile(filepath.Join(w.Dir, "asked.log"))
					if err == nil && !strings.Contains(string(said), " "+user.name+"\n") {
						err = fmt.Errorf("proftpd was told:\n%s", said)
					}
					if strings.Contains(string(said), "liar") {
						t.Fatal("the client's own answer reached proftpd")
					}
					return err
				})
			}
		})
	}
}
