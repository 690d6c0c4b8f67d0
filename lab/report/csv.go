package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// CSV writes one row a cell under the names of summary.json, of storms where the
// run measured logins. An estimate takes three columns: its name for the mean,
// NAME_lo and NAME_hi. Absent figures are empty.
func CSV(w io.Writer, s analysis.Summary) error {
	if s.Measure == result.MeasureLogins {
		return writeCells(w, s.Storms)
	}
	return writeCells(w, s.Cells)
}

func writeCells[C any](w io.Writer, cells []C) error {
	out := csv.NewWriter(w)
	var none C
	head, _ := flatten(reflect.ValueOf(none), "")
	if err := out.Write(head); err != nil {
		return err
	}
	for _, c := range cells {
		_, row := flatten(reflect.ValueOf(c), "")
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// flatten walks the fields of a cell, so that a figure added there is in the
// CSV too.
func flatten(v reflect.Value, prefix string) (names, values []string) {
	for i := range v.NumField() {
		name := prefix + v.Type().Field(i).Tag.Get("json")
		field := v.Field(i)
		switch value := field.Interface().(type) {
		case analysis.Estimate:
			names = append(names, name, name+"_lo", name+"_hi")
			values = append(values, value.Mean.String(), value.Lo.String(), value.Hi.String())
		case []analysis.Tally:
			names, values = append(names, name), append(values, tallies(value))
		case []analysis.CountChange:
			names, values = append(names, name), append(values, countsText(analysis.ChurnFigures{Counts: value}))
		case []analysis.CurvePoint:
			// A distribution is no cell of a table: summary.json has it.
		case *int:
			text := ""
			if value != nil {
				text = fmt.Sprint(*value)
			}
			names, values = append(names, name), append(values, text)
		default:
			if field.Kind() == reflect.Struct {
				n, v := flatten(field, name+".")
				names, values = append(names, n...), append(values, v...)
				continue
			}
			names, values = append(names, name), append(values, fmt.Sprint(value))
		}
	}
	return names, values
}

func tallies(list []analysis.Tally) string {
	var parts []string
	for _, t := range list {
		parts = append(parts, fmt.Sprintf("%d × %s", t.Count, t.Text))
	}
	return strings.Join(parts, "; ")
}
