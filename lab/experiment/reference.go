package experiment

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// KeyReference is what the reference says of one key outside [dut.NAME].
type KeyReference struct {
	Key     string
	List    bool   // it takes a list of what Accepts says
	Accepts string // values, as in the error for others: "a whole number from 1 to 1000"
	Meaning string // with the unit
	Own     string // the measure whose own key it is; empty: several may use it
	// Measures are those it has a meaning for, in the catalogue's order.
	Measures []string
	// Defaults are as in a file, by measure; none where it has to be given or is what it is without.
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
			if !e.Means(f.key) {
				continue
			}
			k.Measures = append(k.Measures, m.Name)
			switch v := f.get(e); {
			case f.key == "measure":
				k.Defaults[m.Name] = inFile(c.Measures[0].Name)
			case f.key != "name" && (!f.optional || !reflect.ValueOf(v).IsZero()):
				k.Defaults[m.Name] = inFile(v)
			}
			maps.DeleteFunc(k.Defaults, func(_, text string) bool { return text == "" })
		}
		list = append(list, k)
	}
	return list
}

// Default is the default of all measures that the key has a meaning for; "" where they differ, or there is none.
func (k KeyReference) Default() string {
	values := slices.Compact(slices.Sorted(maps.Values(k.Defaults)))
	if len(values) != 1 || len(k.Defaults) != len(k.Measures) {
		return ""
	}
	return values[0]
}

// DUTReference lists every key of [dut.NAME], in the order of DUTKeys.
func DUTReference() (list []KeyReference) {
	for _, f := range dutFields {
		d := describedDUT
		k := KeyReference{Key: f.key, Meaning: f.meaning, Defaults: map[string]string{}}
		k.Accepts, k.List = f.accepts(&d)
		if v := f.get(&d); !reflect.ValueOf(v).IsZero() {
			k.Defaults[""] = inFile(v)
		}
		list = append(list, k)
	}
	return list
}

// nothing is no value of any key: its parser says what would be one.
type nothing struct{}

// accepts asks the key's parser what it takes, and whether that is a list.
func (f fieldOf[E]) accepts(e *E) (want string, list bool) {
	err := f.set(e, nothing{})
	if err != nil && strings.HasPrefix(err.Error(), "must be a list: ") {
		err, list = f.set(e, []any{nothing{}}), true
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

// inFile is a value as a file has it; "" of one that is empty.
func inFile(v any) string {
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
			parts = append(parts, inFile(value.Index(i).Interface()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return fmt.Sprint(v)
}
