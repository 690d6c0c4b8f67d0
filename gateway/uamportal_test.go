package gateway

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/gateweigh/gateweigh/gateway/uam"
)

// elsewhereEnv makes the test binary a small portal of our own that speaks CoovaChilli's protocol, on elsewherePort.
// Its value is the secret that it shares with the gateway.
const elsewhereEnv = "GATEWAY_TEST_ELSEWHERE"

// The small portal.
const (
	elsewherePort = "8000"
	elsewhereURL  = "http://hotspot.site:" + elsewherePort + "/login?theme=sea"
)

// serveElsewhere serves the portal. A person types a name and a password; the portal sends the browser to the gateway
// with the answer to the challenge, and never sees the gateway itself.
func serveElsewhere(secret string) {
	page := template.Must(template.New("").Parse(`<!DOCTYPE html><html lang="en"><head>
<meta name="viewport" content="width=device-width"><title>Hotspot</title></head><body><h1>{{.Title}}</h1>
<p id="reply">{{.Q.Get "reply"}}</p><p id="user">{{.Q.Get "uid"}}</p><p id="from">{{.Q.Get "userurl"}}</p>
{{if .Form}}<form method="post" action="/send">
{{range $name, $values := .Q}}<input type="hidden" name="{{$name}}" value="{{index $values 0}}">{{end}}
<input id="username" name="username" autocomplete="username"><input id="password" name="password" type="password"
	autocomplete="current-password"><button>Go</button></form>
{{else}}<a id="out" href="http://{{.Q.Get "uamip"}}:{{.Q.Get "uamport"}}/logoff">Log out</a>{{end}}</body></html>`))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) {
		full := "http://" + r.Host + r.URL.RequestURI()
		made, sum, found := strings.Cut(full, "&md=")
		if !found || sum != uam.Checksum(made, secret) {
			http.Error(w, "this link is not the gateway's", http.StatusForbidden)
			return
		}
		q := r.URL.Query()
		title, known := map[string]string{"notyet": "Log in", "failed": "Wrong", "success": "Online",
			"already": "Online already", "logoff": "Logged out"}[q.Get("res")]
		if !known || q.Get("theme") != "sea" {
			http.Error(w, "no result", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		form := q.Get("res") == "notyet" || q.Get("res") == "failed"
		page.Execute(w, map[string]any{"Title": title, "Q": q, "Form": form})
	})
	mux.HandleFunc("POST /send", func(w http.ResponseWriter, r *http.Request) {
		challenge, err := hex.DecodeString(r.FormValue("challenge"))
		if err != nil {
			http.Error(w, "no challenge", http.StatusBadRequest)
			return
		}
		shared := md5.Sum(append(challenge, secret...))
		answer := md5.Sum(append([]byte("\x00"+r.FormValue("password")), shared[:]...))
		q := url.Values{"username": {r.FormValue("username")}, "response": {hex.EncodeToString(answer[:])}}
		http.Redirect(w, r, fmt.Sprintf("http://%s:%s/logon?%s", r.FormValue("uamip"), r.FormValue("uamport"), q.Encode()),
			http.StatusSeeOther)
	})
	if source := os.Getenv(peerEnv); source != "" {
		servePeer(mux, source)
	}
	fmt.Fprintln(os.Stderr, "serving the portal elsewhere:", http.ListenAndServe(":"+elsewherePort, mux))
	os.Exit(1)
}
