package main

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/voucher"
	"github.com/gateweigh/gateweigh/gateway/voucher/sheet"
)

// TestPrintEnds: a signal ends the printing of vouchers, whose unfinished file is removed.
func TestPrintEnds(t *testing.T) {
	all := make([]voucher.Voucher, 100)
	for i := range all {
		all[i] = voucher.Voucher{Name: "lobby-1", Code: "K7HM2XPD9RTW", Terms: voucher.Terms{Devices: 1}}
	}
	path := filepath.Join(t.TempDir(), "sheet.pdf")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := writeSheet(ctx, path, sheet.Page{Title: "a", Link: "http://portal.example/login", Lang: "en"}, all)
	if err == nil || !strings.Contains(err.Error(), "sheet.pdf is not written: a signal ended the command") {
		t.Errorf("the command answers %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the unfinished file is left: %v", err)
	}
}

// TestUncertain: where gatewayd dies while it answers about a new batch, the command says what to look at.
func TestUncertain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte(`{"name":`))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	for batch, want := range map[string]string{"lobby": "`gatewayd voucher list lobby`", "": "`gatewayd voucher list`"} {
		root := rootCommand()
		root.SetArgs([]string{"voucher", "create", "--for", "1h", "--socket", socket, "--batch", batch})
		err := root.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "gatewayd voucher export") {
			t.Errorf("batch %q: %v", batch, err)
		}
	}
}
