package result

import (
	"maps"
	"math"
	"reflect"
	"strings"
	"unique"
)

// Values are the figures of a record by name. A nested record's figures have a dot: "napi_ns", "rtt_us.p50",
// "role_ns.client". Figures that were not measured are missing.
type Values map[string]float64

// Get returns a figure, NaN when it is absent.
func (v Values) Get(name string) float64 {
	if x, ok := v[name]; ok {
		return x
	}
	return math.NaN()
}

// WithPrefix returns the figures whose names begin with prefix. Their names lose the prefix.
func (v Values) WithPrefix(prefix string) Values {
	out := Values{}
	for name, x := range v {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			out[rest] = x
		}
	}
	return out
}

// ValuesOf lists the numbers of a record under their JSON names. It leaves out texts, lists and fields behind a nil
// pointer.
func ValuesOf(record any) Values {
	all := Values{}
	all.add("", reflect.ValueOf(record))
	out := make(Values, len(all)) // exact size, because runs keep tens of thousands of these maps
	maps.Copy(out, all)
	return out
}

func (v Values) add(name string, field reflect.Value) {
	switch field.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !field.IsNil() {
			v.add(name, field.Elem())
		}
	case reflect.Float64, reflect.Float32:
		v[name] = field.Float()
	case reflect.Int, reflect.Int64, reflect.Int32:
		v[name] = float64(field.Int())
	case reflect.Map:
		for _, key := range field.MapKeys() {
			v.add(below(name, key.String()), field.MapIndex(key))
		}
	case reflect.Struct:
		for i := range field.NumField() {
			part := field.Type().Field(i)
			tag, _, _ := strings.Cut(part.Tag.Get("json"), ",")
			if tag == "" && !part.Anonymous || tag == "-" || !part.IsExported() {
				continue
			}
			v.add(below(name, tag), field.Field(i))
		}
	}
}

func below(name, part string) string {
	if name == "" || part == "" {
		return name + part
	}
	return unique.Make(name + "." + part).Value() // all records of a run share the text
}

// Quantile interpolates linearly between the order statistics of an ascending list (type 7 of Hyndman and Fan, the
// default of numpy and R). It is NaN for an empty list.
func Quantile(ascending []float64, p float64) float64 {
	if len(ascending) == 0 {
		return math.NaN()
	}
	position := p * float64(len(ascending)-1)
	below := int(position)
	above := min(below+1, len(ascending)-1)
	return ascending[below] + (position-float64(below))*(ascending[above]-ascending[below])
}
