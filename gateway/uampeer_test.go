package gateway

import (
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/browsertest"
)

// Portals that were written for CoovaChilli, as they are in its source: doc/hotspotlogin.cgi in Perl, and
// www/ChilliLibrary.js for pages of portals. They are not part of this project: peerEnv names a folder with
// CoovaChilli's source (github.com/coova/coova-chilli), and without it these tests do not run.
const (
	peerEnv    = "GATEWEIGH_COOVACHILLI_SOURCE"
	peerSecret = "uamsecret" // as hotspotlogin.cgi has it
	peerCGI    = "doc/hotspotlogin.cgi"
	peerScript = "www/ChilliLibrary.js"
	peerURL    = "http://hotspot.site:" + elsewherePort
	// peerNear is the same with a private address: Chromium lets pages of public ones load nothing from private ones, such
	// as the gateway's, unless they came over https and the person agrees.
	peerNear = "http://192.168.9.2:" + elsewherePort
)

// servePeer serves the peer's files, unchanged: the CGI program, and a page that has nothing but the library.
func servePeer(mux *http.ServeMux, source string) {
	mux.Handle("/cgi-bin/hotspotlogin.cgi", &cgi.Handler{Path: filepath.Join(source, peerCGI)})
	mux.HandleFunc("GET /library.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(source, peerScript))
	})
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!DOCTYPE html><html><head><title>Page</title><script src="/library.js"></script></head><body>
<script>chilliController.host="10.1.0.1";chilliController.port=3990;chilliController.interval=0;var updates=0,wrong="";
chilliController.onUpdate=function(){updates++};chilliController.onError=function(e){wrong+=e}</script></body></html>`)
	})
}

// startPeer starts RADIUS, DNS, the web and the peer's portal, or says that the peer is not here. It returns the RADIUS
// server's secret, "" if the test does not run.
func startPeer(t *testing.T) (secret string) {
	t.Helper()
	source := os.Getenv(peerEnv)
	if source == "" {
		t.Attr("not-run", "a portal made for CoovaChilli: "+peerEnv+" names no folder with CoovaChilli's source")
		return ""
	}
	for _, name := range []string{peerCGI, peerScript} {
		_, err := os.Stat(filepath.Join(source, name))
		must(t, err)
	}
	if _, err := exec.LookPath("perl"); err != nil {
		t.Attr("not-run", "a portal made for CoovaChilli: perl is not on PATH")
		return ""
	}
	network(t)
	secret, _ = startOutside(t)
	spawn(t, "server", "env", elsewhereEnv+"="+peerSecret, peerEnv+"="+source, os.Args[0])
	eventually(t, "the peer's portal", func() bool {
		out, err := try(`ip netns exec server ss -Hltn`)
		return err == nil && strings.Contains(out, "*:"+elsewherePort)
	})
	return secret
}

// servePeerGateway runs a gateway that sends clients to a page of the peer's.
func servePeerGateway(t *testing.T, secret, url, keys string) daemon {
	t.Helper()
	cfg := milanoWithout(t, t.TempDir(), secret, "[uam]\nportal_url = \""+url+"\"\nhttp = true\n"+keys)
	t.Cleanup(func() { must(t, Detach(cfg, false)) }) // once it has ended
	d := serve(t, cfg)
	lease(t)
	resolveAt(t, "10.1.0.1")
	return d
}

// TestHotspotLoginOfCoovaChilli: CoovaChilli's own portal in Perl, without a change, logs a person in and out.
func TestHotspotLoginOfCoovaChilli(t *testing.T) {
	secret := startPeer(t)
	if secret == "" {
		return
	}
	d := servePeerGateway(t, secret, peerURL+"/cgi-bin/hotspotlogin.cgi",
		"secret = \""+peerSecret+"\"\nschemes = [\"chap\"]\n")
	p := newVisitor(t, "hotspotlogin", 1280, 800)
	// Windows that the pages open would come in front of them.
	browsertest.Call(t, p.ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: "window.open=()=>({close(){}})"})
	// The portal goes on by itself, from "Please wait" to the gateway and back.
	comesTo := func(title string) {
		t.Helper()
		eventually(t, "the page "+title, func() bool {
			return p.reads(t, `(document.querySelector("h1")||{innerText:""}).innerText`) == title
		})
	}
	p.navigate(t, chromedp.Navigate(wanted))
	comesTo("CoovaChilli Login")
	p.navigate(t, chromedp.SendKeys(`[name="UserName"]`, "alice"), chromedp.SendKeys(`[name="Password"]`, "wrong"),
		chromedp.Click(`[name="button"]`))
	comesTo("CoovaChilli Login Failed")
	if got := d.client(t).State; got == session.Authenticated {
		t.Fatal("a wrong password lets the client in")
	}
	p.navigate(t, chromedp.SendKeys(`[name="UserName"]`, "alice"),
		chromedp.SendKeys(`[name="Password"]`, "correct horse"), chromedp.Click(`[name="button"]`))
	comesTo("Logged in to CoovaChilli")
	if s := d.client(t); s.State != session.Authenticated || s.User != "alice" || !clientReachesServer() {
		t.Fatalf("the session is %+v", s)
	}
	p.navigate(t, chromedp.Click(`a[href$="/logoff"]`))
	comesTo("Logged out from CoovaChilli")
	if got := d.client(t).State; got == session.Authenticated {
		t.Error("the session goes on after the log-out")
	}
	p.navigate(t, chromedp.Click(`a[href$="/prelogin"]`))
	comesTo("CoovaChilli Login")
}

// TestChilliLibraryOfCoovaChilli: CoovaChilli's library for pages, without a change, reads the state, logs a person in
// by CHAP, and out.
func TestChilliLibraryOfCoovaChilli(t *testing.T) {
	secret := startPeer(t)
	if secret == "" {
		return
	}
	sh(t, `ip -n server addr add 192.168.9.2/32 dev lo; ip route add 192.168.9.2 via 192.0.2.2`)
	d := servePeerGateway(t, secret, peerNear+"/page", "schemes = [\"chap\"]\njsonp = true\n")
	p := newVisitor(t, "library", 1280, 800)
	p.navigate(t, chromedp.Navigate(wanted))
	// does something by the library, and waits for its answer
	asks := func(call string) string {
		t.Helper()
		p.reads(t, `(updates=0,wrong="",`+call+`,"")`)
		eventually(t, call, func() bool { return p.reads(t, `updates+wrong`) != "0" })
		return p.reads(t, `chilliController.clientState+" "+(chilliController.session||{}).userName+" "+wrong`)
	}
	if got := asks(`chilliController.refresh()`); got != "0 undefined " {
		t.Errorf("the state is %q", got)
	}
	if got := asks(`chilliController.logon("alice","wrong")`); !strings.HasPrefix(got, "0 ") {
		t.Errorf("a wrong password: %q", got)
	}
	if got := asks(`chilliController.logon("alice","correct horse")`); got != "1 alice " {
		t.Errorf("the right password: %q", got)
	}
	if s := d.client(t); s.State != session.Authenticated || s.User != "alice" || !clientReachesServer() {
		t.Fatalf("the session is %+v", s)
	}
	if got := asks(`chilliController.refresh()`); got != "1 alice " {
		t.Errorf("the state is %q", got)
	}
	asks(`chilliController.logoff()`) // or the answer to a look of the library's own comes first
	eventually(t, "the log-out", func() bool {
		return p.reads(t, `""+chilliController.clientState`) == "0" && d.client(t).State != session.Authenticated
	})
}
