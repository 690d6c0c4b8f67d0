package analysis

import (
	"encoding/json"
	"math"
	"strconv"
)

// significantDigits kept in JSON and CSV. Fewer than a float64 holds:
// architectures that fuse multiply and add differ in the last ones, and a summary
// rebuilt elsewhere should differ in as little as can be.
const significantDigits = 7

// negligible is the size below which a figure is 0 in JSON and CSV: terms that
// cancel leave 0 on one architecture and 1e-17 on another.
const negligible = 1e-12

// Number is a figure that may be absent. NaN and infinities stand for absent
// and are null in JSON, so no summary ever carries one.
type Number float64

// Absent is the Number of what was not or could not be measured.
func Absent() Number { return Number(math.NaN()) }

// Known reports whether the figure is there.
func (n Number) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// MarshalJSON writes seven significant digits, 0 below 1e-12, or null when absent.
func (n Number) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(n.rounded())
}

// UnmarshalJSON reads a number, or null as absent.
func (n *Number) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*n = Absent()
		return nil
	}
	var f float64
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	*n = Number(f)
	return nil
}

// String is the JSON form, empty when absent: what a CSV cell holds.
func (n Number) String() string {
	if !n.Known() {
		return ""
	}
	return strconv.FormatFloat(n.rounded(), 'f', -1, 64)
}

func (n Number) rounded() float64 {
	if math.Abs(float64(n)) < negligible {
		return 0
	}
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'g', significantDigits, 64), 64)
	if err != nil {
		return 0 // rounding up past the largest float64
	}
	return f
}
