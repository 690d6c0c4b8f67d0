package report

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/report/chart"
)

// linear converts a colour such as #0072b2 to linear red, green and blue.
func linear(t *testing.T, colour string) (out [3]float64) {
	t.Helper()
	n, err := strconv.ParseUint(colour[1:], 16, 24)
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		c := float64(n>>(16-8*i)&255) / 255
		if out[i] = c / 12.92; c > 0.04045 {
			out[i] = math.Pow((c+0.055)/1.055, 2.4)
		}
	}
	return out
}

// contrast is the contrast of two colours by WCAG 2.
func contrast(a, b [3]float64) float64 {
	luminance := func(c [3]float64) float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(luminance(a), luminance(b)) / min(luminance(a), luminance(b))
}

// oklab converts a colour to Oklab, a colour space in which equal distances look equally large.
func oklab(c [3]float64) [3]float64 {
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
	return [3]float64{0.2104542553*l + 0.7936177850*m - 0.0040720468*s, 1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s}
}

// TestDevicesDifferInColour: twelve devices and the clean router have colours that can be read on the page and told
// apart, on a light screen, on a dark one, and in print.
func TestDevicesDifferInColour(t *testing.T) {
	const leastContrast, leastDistance = 4.5, 0.085
	if chart.Colours < 12 {
		t.Fatalf("only %d colours", chart.Colours)
	}
	schemes := 0
	for root := range strings.SplitSeq(pageStyle, ":root {") {
		root, _, _ = strings.Cut(root, "}")
		values := map[string]string{}
		for _, m := range regexp.MustCompile(`--(\w+): (#[0-9a-f]{3,6});`).FindAllStringSubmatch(root, -1) {
			values[m[1]] = m[2]
		}
		if values["clean"] == "" {
			continue
		}
		schemes++
		if values["page"] == "#fff" {
			values["page"] = "#ffffff"
		}
		page := linear(t, values["page"])
		names := []string{"clean"}
		for i := range chart.Colours {
			names = append(names, "c"+strconv.Itoa(i))
			if class := ".s" + strconv.Itoa(i) + " { --series: var(--c" + strconv.Itoa(i) +
				"); }"; !strings.Contains(pageStyle, class) {
				t.Errorf("the style lacks %s", class)
			}
		}
		for i, name := range names {
			if values[name] == "" {
				t.Fatalf("scheme %d lacks the colour %s", schemes, name)
			}
			colour := linear(t, values[name])
			if c := contrast(colour, page); c < leastContrast {
				t.Errorf("%s has a contrast of %.1f with the page", values[name], c)
			}
			for _, other := range names[:i] {
				a, b := oklab(colour), oklab(linear(t, values[other]))
				if far := math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2]); far < leastDistance {
					t.Errorf("%s and %s are only %.3f apart", values[name], values[other], far)
				}
			}
		}
	}
	if schemes != 3 {
		t.Errorf("%d schemes, want those of light, dark and print", schemes)
	}
}
