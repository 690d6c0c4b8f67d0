// Package sheet prints vouchers on A4, ten a page with lines to cut along. Each has its code, for people, and a QR code
// that is a link to the portal's login page with the code.
package sheet

import (
	"bytes"
	"context"
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/boombuler/barcode/qr"
	"github.com/signintech/gopdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/sfnt"

	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// Page is what is on a sheet besides the vouchers.
type Page struct {
	Title string // the network's name
	// Link is the URL of the login page, to which "#v=CODE" is added: a fragment, which browsers send to nobody.
	Link string
	Lang string // of Languages
	// Progress is called after each page with the number of vouchers so far; nil: nobody is told.
	Progress func(done int)
}

// Measures, in points of 1/72 inch.
const (
	mm            = 72 / 25.4
	columns, rows = 2, 5
	marginX       = 12 * mm
	marginY       = 13 * mm
	width         = (210*mm - 2*marginX) / columns
	height        = (297*mm - 2*marginY) / rows
	padding       = 4 * mm
	qrSize        = 27 * mm
	textX         = padding + qrSize + quiet
	textWidth     = width - textX - padding
	quiet         = 5 * mm // beside a QR code, and with padding above 4 modules (ISO/IEC 18004, 6.3.8)
)

// Fonts, which have Latin, Greek and Cyrillic letters.
const regular, bold, mono = "regular", "bold", "mono"

// Write writes a PDF with vouchers.
func Write(ctx context.Context, w io.Writer, page Page, vouchers []voucher.Voucher) error {
	t, known := texts[page.Lang]
	if !known {
		return fmt.Errorf("no language is called %q: there are %s", page.Lang, strings.Join(Languages(), ", "))
	}
	s := &sheet{page: page, texts: t}
	s.pdf.Start(gopdf.Config{PageSize: *gopdf.PageSizeA4})
	s.pdf.SetInfo(gopdf.PdfInfo{Title: page.Title, Creator: "gatewayd", CreationDate: time.Now()})
	for name, data := range map[string][]byte{regular: goregular.TTF, bold: gobold.TTF, mono: gomonobold.TTF} {
		option := gopdf.TtfOption{OnGlyphNotFoundSubstitute: func(rune) rune { return '?' }}
		if err := s.pdf.AddTTFFontByReaderWithOption(name, bytes.NewReader(data), option); err != nil {
			return fmt.Errorf("the font %s: %w", name, err)
		}
	}
	for i, v := range vouchers {
		place := i % (columns * rows)
		if place == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if page.Progress != nil {
				page.Progress(i)
			}
			s.pdf.AddPage()
			s.cutLines()
		}
		x, y := marginX+float64(place%columns)*width, marginY+float64(place/columns)*height
		if err := s.ticket(x, y, v); err != nil {
			return fmt.Errorf("printing voucher %s: %w", v.Name, err)
		}
	}
	_, err := s.pdf.WriteTo(untilEnd{ctx, w})
	return err
}

// Lacking returns the characters of texts that the sheet's font does not have, each once. "?" is printed for them.
func Lacking(texts ...string) (all []rune) {
	font, err := sfnt.Parse(goregular.TTF)
	if err != nil {
		return nil
	}
	var b sfnt.Buffer
	for _, r := range strings.Join(texts, "") {
		if i, err := font.GlyphIndex(&b, r); (err != nil || i == 0) && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// untilEnd is a writer until a context ends.
type untilEnd struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (u untilEnd) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}

// sheet is a PDF that is being written.
type sheet struct {
	pdf   gopdf.GoPdf
	page  Page
	texts words
}

// cutLines draws the lines between the vouchers.
func (s *sheet) cutLines() {
	s.pdf.SetLineWidth(0.4)
	s.pdf.SetStrokeColor(170, 170, 170)
	s.pdf.SetCustomLineType([]float64{3, 3}, 0)
	for i := range columns + 1 {
		x := marginX + float64(i)*width
		s.pdf.Line(x, marginY, x, marginY+rows*height)
	}
	for i := range rows + 1 {
		y := marginY + float64(i)*height
		s.pdf.Line(marginX, y, marginX+columns*width, y)
	}
}

// ticket draws a voucher.
func (s *sheet) ticket(x, y float64, v voucher.Voucher) error {
	if err := s.code(x+padding, y+(height-qrSize)/2-2*mm, s.page.Link+"#v="+v.Code.String()); err != nil {
		return err
	}
	details := s.texts.details(v.Terms)
	lines := []line{{bold, 13, s.page.Title, 0}, {regular, 8, s.texts.code, 4 * mm}, {mono, 14, v.Code.String(), 0.5 * mm}}
	for i, d := range details {
		lines = append(lines, line{regular, 8.5, d, map[bool]float64{true: 3 * mm}[i == 0]})
	}
	at := y + padding + 1*mm
	for _, l := range lines {
		at += l.above
		if err := s.text(x+textX, at, textWidth, l); err != nil {
			return err
		}
		at += l.size * 1.25
	}
	foot := y + height - padding - 15
	if err := s.text(x+padding, foot, width-2*padding, line{regular, 7, s.texts.scan(s.page.Link), 0}); err != nil {
		return err
	}
	return s.text(x+padding, foot+9, width-2*padding, line{regular, 7, s.texts.number(v.Name), 0})
}

// line is a line of text.
type line struct {
	font  string
	size  float64 // points
	text  string
	above float64 // space above it
}

// smallest is the size to which a text may be made smaller so that it fits. A longer one is cut.
const smallest = 6

// text draws a line in a width, smaller where it is too long.
func (s *sheet) text(x, y, width float64, l line) error {
	for size := l.size; ; size -= 0.5 {
		if err := s.pdf.SetFont(l.font, "", size); err != nil {
			return err
		}
		wide, err := s.pdf.MeasureTextWidth(l.text)
		if err != nil {
			return err
		}
		if wide <= width {
			break
		}
		if runes := []rune(strings.TrimSuffix(l.text, "…")); size <= smallest && len(runes) > 1 {
			l.text, size = string(runes[:len(runes)-1])+"…", smallest+0.5
		}
	}
	s.pdf.SetTextColor(20, 25, 30)
	s.pdf.SetXY(x, y)
	return s.pdf.Cell(nil, l.text)
}

// code draws a QR code: each run of dark modules is a rectangle, a little higher than a module, so
// that no light line is between two rows.
func (s *sheet) code(x, y float64, content string) error {
	code, err := qr.Encode(content, qr.M, qr.Auto)
	if err != nil {
		return err
	}
	modules := code.Bounds().Dx()
	size := qrSize / float64(modules)
	s.pdf.SetFillColor(0, 0, 0)
	dark := func(column, row int) bool { return column < modules && code.At(column, row) == color.Black }
	for row := range modules {
		for column := 0; column < modules; column++ {
			from := column
			for dark(column, row) {
				column++
			}
			if column > from {
				s.pdf.RectFromUpperLeftWithStyle(x+float64(from)*size, y+float64(row)*size,
					float64(column-from)*size, size+0.02, "F")
			}
		}
	}
	return nil
}
