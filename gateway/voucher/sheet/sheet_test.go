package sheet

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// TestSheet reads a printed sheet back: pdftotext finds each code and what the vouchers allow, and zbarimg reads each
// QR code, which is the link with the code in its fragment.
func TestSheet(t *testing.T) {
	const count, link = 12, "http://portal.example:8080/login"
	var all []voucher.Voucher
	for i := range count {
		code := voucher.Code("K7HM2XPD9RC" + voucher.Alphabet[i:i+1])
		v := voucher.Voucher{Name: fmt.Sprint("lobby-", i+1), Code: code,
			Terms: voucher.Terms{Devices: 2, ForSeconds: 24 * 3600, OnlineSeconds: 90 * 60, Bytes: 1_500_000_000,
				Until: time.Date(2027, 1, 1, 0, 0, 0, 0, time.Local), Note: "Zimmer 12, Ελλάδα, Привет"}}
		all = append(all, v)
	}
	path := filepath.Join(t.TempDir(), "sheet.pdf")
	var b bytes.Buffer
	if err := Write(t.Context(), &b, Page{Title: "Hôtel Köln", Link: link, Lang: "de"}, all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	text := run(t, "pdftotext", "-layout", path, "-")
	for _, want := range []string{"Hôtel Köln", "Gültig 24 Stunden ab erster Anmeldung", "Gültig bis 31.12.2026",
		"90 Minuten online, 1,5 GB Daten", "2 Geräte gleichzeitig", "Zimmer 12, Ελλάδα, Привет",
		"portal.example:8080/login"} {
		if n := strings.Count(text, want); n != count {
			t.Errorf("%q is on the sheet %d times, want %d", want, n, count)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if pages := strings.Count(text, "\f"); pages != 2 {
		t.Errorf("%d pages, want 2", pages)
	}
	read := scan(t, path)
	for i, v := range all {
		if want := link + "#v=" + v.Code.String(); i >= len(read) || read[i] != want {
			t.Errorf("QR codes %q, want %s", read, want)
			break
		}
		if !strings.Contains(text, v.Code.String()) || !strings.Contains(text, "Voucher "+v.Name) {
			t.Errorf("%s is not on the sheet with its code", v.Name)
		}
	}
}

// scan reads the QR codes of a PDF, as a phone does from paper.
func scan(t *testing.T, path string) []string {
	t.Helper()
	pages := filepath.Join(t.TempDir(), "page")
	run(t, "pdftoppm", "-r", "150", "-gray", "-png", path, pages)
	images, err := filepath.Glob(pages + "*.png")
	if err != nil {
		t.Fatal(err)
	}
	read := strings.Fields(run(t, "zbarimg", append([]string{"-q", "--raw"}, images...)...))
	slices.Sort(read)
	return read
}

// TestLongTexts: texts that are too long are made smaller or cut, and letters that the fonts lack are replaced.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("long and longer ", 10)
	v := voucher.Voucher{Name: "lobby-1", Code: "K7HM2XPD9RTW", Terms: voucher.Terms{Devices: 1, Note: "ホテル " + long}}
	for _, lang := range Languages() {
		var b bytes.Buffer
		err := Write(t.Context(), &b, Page{Title: long,
			Link: "https://" + strings.Repeat("long.", 40) + "example/login", Lang: lang},
			[]voucher.Voucher{v})
		if err != nil || !bytes.HasPrefix(b.Bytes(), []byte("%PDF-")) {
			t.Errorf("%s: %v", lang, err)
		}
	}
	if err := Write(t.Context(), &bytes.Buffer{}, Page{Lang: "xx"}, nil); err == nil ||
		!strings.Contains(err.Error(), "de, en") {
		t.Errorf("an unknown language: %v", err)
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, problems.String())
	}
	return string(out)
}

// TestLacking: characters that the font lacks are named, each once.
func TestLacking(t *testing.T) {
	if got := string(Lacking("Hôtel Köln, Ελλάδα, Привет", "ホテル ホ")); got != "ホテル" {
		t.Errorf("the font lacks %q", got)
	}
}
