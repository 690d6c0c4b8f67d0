package frames

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"github.com/gateweigh/gateweigh/textfile"
)

// ReadHistogram reads a mix from CSV: a line "bytes,weight" for each size. The first line may be a heading of these two
// words. Lines that begin with # are comments. Weights of lines with the same size add up. name is the file's name in
// messages.
func ReadHistogram(r io.Reader, name string) (Sizes, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return Sizes{}, fmt.Errorf("reading %s: %w", name, err)
	}
	if text, err = textfile.Decode(text); err != nil {
		return Sizes{}, fmt.Errorf("%s:1: %w", name, err)
	}
	lines := csv.NewReader(bytes.NewReader(text))
	lines.Comment, lines.FieldsPerRecord, lines.TrimLeadingSpace, lines.ReuseRecord = '#', 2, true, true
	sum := map[uint16]*big.Rat{}
	for first := true; ; first = false {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return mix(name, sum)
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			return Sizes{}, fmt.Errorf("%s:%d: %w: lines are bytes,weight", name, bad.Line, bad.Err)
		}
		if err != nil {
			return Sizes{}, fmt.Errorf("reading %s: %w", name, err)
		}
		if first && strings.EqualFold(strings.TrimSpace(fields[0]), "bytes") {
			continue
		}
		bytes, weight, err := histogramLine(fields)
		if err != nil {
			line, _ := lines.FieldPos(0)
			return Sizes{}, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		addWeight(sum, bytes, weight)
	}
}

// histogramLine parses a line's two fields.
func histogramLine(fields []string) (bytes uint16, weight *big.Rat, err error) {
	n, err := strconv.Atoi(strings.TrimSpace(fields[0]))
	if err != nil {
		return 0, nil, fmt.Errorf("the size %q is not a number of bytes", fields[0])
	}
	if err := checkSize(n); err != nil {
		return 0, nil, err
	}
	w, err := strconv.ParseFloat(strings.TrimSpace(fields[1]), 64)
	if err != nil {
		return 0, nil, fmt.Errorf("the weight %q is not a number", fields[1])
	}
	weight, err = exactDecimal(w)
	if err != nil || weight.Sign() < 0 {
		return 0, nil, fmt.Errorf("the weight %q: weights are numbers from 0 on", fields[1])
	}
	return uint16(n), weight, nil
}
