package experiment_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/gateweigh/gateweigh/lab/measure"
)

// TestEncodingsOfEditors: an experiment and its file of sizes are read in UTF-8 with a byte order mark and in UTF-16,
// with lines that end as on Windows; of another encoding the file, its encoding and the way out are named.
func TestEncodingsOfEditors(t *testing.T) {
	utf16Of := func(order binary.AppendByteOrder, mark string) func(string) string {
		return func(text string) string {
			var out []byte
			for _, unit := range utf16.Encode([]rune(mark + text)) {
				out = order.AppendUint16(out, unit)
			}
			return string(out)
		}
	}
	const text = "# 中文\r\nduts = [\"own\"]\r\nclients = [2]\r\noffered_mbps = [20]\r\ntraffic = { kind = \"frames\" " +
		"}\r\nframe_sizes = [\"x.csv\"]\r\n[dut.own]\r\nstart = '''\r\ntrue\r\ntrue'''\r\n"
	for name, c := range map[string]struct {
		encode func(string) string
		refuse string
	}{
		"UTF-8":                 {encode: func(s string) string { return s }},
		"UTF-8 with a mark":     {encode: func(s string) string { return "\ufeff" + s }},
		"UTF-16, little":        {encode: utf16Of(binary.LittleEndian, "\ufeff")},
		"UTF-16, big":           {encode: utf16Of(binary.BigEndian, "\ufeff")},
		"UTF-16 without a mark": {utf16Of(binary.LittleEndian, ""), "UTF-16 text: save it as UTF-8"},
		"UTF-32": {
			func(string) string { return "\xff\xfe\x00\x00#\x00\x00\x00" }, "UTF-32 text: save it as UTF-8"},
		"UTF-16 that was cut": {
			func(s string) string { return utf16Of(binary.LittleEndian, "\ufeff")(s) + "x" }, "ends within a character"},
		"UTF-16, nothing but mark": {func(string) string { return "\xff\xfe" }, "duts"},
	} {
		dir := t.TempDir()
		write := func(name, text string) string {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, name)
		}
		write("x.csv", c.encode("bytes,weight\r\n60,1\r\n"))
		e, err := measure.Catalogue().Load(write("e.toml", c.encode(text)))
		switch {
		case c.refuse != "":
			if err == nil || !strings.Contains(err.Error(), "e.toml:1: ") || !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("%s: %v, want %q", name, err, c.refuse)
			}
			if c.refuse == "duts" {
				continue
			}
			if _, err := measure.Catalogue().Load(write("e.toml", text)); err == nil ||
				!strings.Contains(err.Error(), "x.csv:1: ") || !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("sizes in %s: %v, want %q", name, err, c.refuse)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case strings.Contains(strings.Join(e.Custom["own"].Start, " "), "\r") || len(e.FrameSizes) != 1:
			t.Errorf("%s: %q, %v", name, e.Custom["own"].Start, e.FrameSizes)
		}
	}
}
