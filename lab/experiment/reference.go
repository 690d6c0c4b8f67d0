package experiment

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// KeyReference describes one key for the reference pages.
type KeyReference struct {
	Key     string
	List    bool   // it takes a list of such values
	Accepts string // the values that it takes, as in errors: "a whole number from 1 to 1000"
	Meaning string // with the unit
	Own     string // the measure to which the key belongs; empty: it is shared
	// Measures are the measures to which the key applies, in the catalogue's order.
	Measures []string
	// Defaults are the defaults by measure, as text in a file. A key that must be set, or has no value unless it is set,
	// has none.
	Defaults map[string]string
}

// Reference lists every key outside [dut.NAME], in the order of Keys.
func (c Catalogue) Reference() (list []KeyReference) {
	defaults := map[string]*Experiment{}
	for _, m := range c.Measures {
		e := newExperiment(c, "")
		e.Measure = m.Name
		e.applyDefaults()
		defaults[m.Name] = e
	}
	for _, f := range c.fields() {
		k := KeyReference{Key: f.key, Meaning: f.meaning, Own: f.measure, Defaults: map[string]string{}}
		k.Accepts, k.List = f.accepts(newExperiment(c, ""))
		for _, m := range c.Measures {
			e := defaults[m.Name]
			if !e.Applies(f.key) {
				continue
			}
			k.Measures = append(k.Measures, m.Name)
			switch v := f.get(e); {
			case f.key == "measure":
				k.Defaults[m.Name] = fileText(c.Measures[0].Name)
			case f.key != "name" && (!f.optional || !reflect.ValueOf(v).IsZero()):
				k.Defaults[m.Name] = fileText(v)
			}
			maps.DeleteFunc(k.Defaults, func(_, text string) bool { return text == "" })
		}
		list = append(list, k)
	}
	return list
}

// Default returns the default that all measures share; "" where they differ, or there is none.
func (k KeyReference) Default() string {
	values := slices.Compact(slices.Sorted(maps.Values(k.Defaults)))
	if len(values) != 1 || len(k.Defaults) != len(k.Measures) {
		return ""
	}
	return values[0]
}

// DUTReference lists every key of [dut.NAME], in the order of DUTKeys.
func DUTReference() []KeyReference { return referenceOf(dutFields, defaultDUT) }

// referenceOf lists the keys of a table whose default values are in defaults.
func referenceOf[E any](fields []fieldOf[E], defaults E) (list []KeyReference) {
	for _, f := range fields {
		entry := defaults // the parsers may change it
		k := KeyReference{Key: f.key, Meaning: f.meaning, Defaults: map[string]string{}}
		k.Accepts, k.List = f.accepts(&entry)
		if v := f.get(&entry); !reflect.ValueOf(v).IsZero() {
			k.Defaults[""] = fileText(v)
		}
		list = append(list, k)
	}
	return list
}

// unacceptable is a value that every parser refuses, with an error that names the values it accepts.
type unacceptable struct{}

// accepts returns what the key's parser accepts, in words, and whether the key takes a list of that.
func (f fieldOf[E]) accepts(e *E) (want string, list bool) {
	err := f.set(e, unacceptable{})
	if err != nil && strings.HasPrefix(err.Error(), "must be a list: ") {
		err, list = f.set(e, []any{unacceptable{}}), true
	}
	if err == nil {
		panic(fmt.Sprintf("%s takes anything", f.key))
	}
	want = strings.TrimPrefix(strings.TrimPrefix(err.Error(), "each value "), "must be ")
	if i := strings.LastIndex(want, ", not "); i >= 0 {
		want = want[:i]
	}
	return strings.TrimSuffix(want, ","), list
}

// fileText returns a value as it is written in a file; "" for an empty one.
func fileText(v any) string {
	value := reflect.ValueOf(v)
	switch d, isDuration := v.(time.Duration); {
	case isDuration:
		return fmt.Sprintf("%q", d)
	case value.Kind() == reflect.String && value.Len() == 0, value.Kind() == reflect.Slice && value.Len() == 0:
		return ""
	case value.Kind() == reflect.String:
		return fmt.Sprintf("%q", v)
	case value.Kind() == reflect.Slice:
		var parts []string
		for i := range value.Len() {
			parts = append(parts, fileText(value.Index(i).Interface()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}
