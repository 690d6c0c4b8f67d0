// Package layout holds the Go types that programs in the kernel share with this one against the C types
// that the programs were compiled from, on the architecture this program runs on.
package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// Check reports where an object's maps have other values than the Go values of the same names, and an object
// whose bytes are in another order than this machine's.
func Check(spec *ebpf.CollectionSpec, values map[string]any) error {
	if spec.ByteOrder != nil && spec.ByteOrder.Uint16([]byte{1, 0}) != binary.NativeEndian.Uint16([]byte{1, 0}) {
		return fmt.Errorf("the object's bytes are in the order %s, this machine's are not", spec.ByteOrder)
	}
	var errs []error
	for name, value := range values {
		m := spec.Maps[name]
		if m == nil {
			errs = append(errs, fmt.Errorf("the object has no map %s", name))
			continue
		}
		if err := check(m, reflect.TypeOf(value)); err != nil {
			errs = append(errs, fmt.Errorf("map %s: %w", name, err))
		}
	}
	for name, p := range spec.Programs {
		if len(p.Instructions) == 0 {
			errs = append(errs, fmt.Errorf("program %s has no instructions", name))
		}
	}
	return errors.Join(errs...)
}

func check(m *ebpf.MapSpec, t reflect.Type) error {
	if uintptr(m.ValueSize) != t.Size() {
		return fmt.Errorf("its values have %d bytes, %s has %d", m.ValueSize, t, t.Size())
	}
	c, is := btf.UnderlyingType(m.Value).(*btf.Struct)
	if !is {
		return nil // a number
	}
	index := 0 // of the C struct's members
	for f := range t.Fields() {
		if f.Name == "_" {
			continue
		}
		if index == len(c.Members) {
			return fmt.Errorf("%s has the field %s, the C type has only %d", t, f.Name, index)
		}
		member := c.Members[index]
		index++
		size, err := btf.Sizeof(member.Type)
		if err != nil {
			return fmt.Errorf("field %s: %w", member.Name, err)
		}
		if member.Offset.Bytes() != uint32(f.Offset) || uintptr(size) != f.Type.Size() {
			return fmt.Errorf("%s.%s is at byte %d with %d bytes, in C %s is at %d with %d",
				t, f.Name, f.Offset, f.Type.Size(), member.Name, member.Offset.Bytes(), size)
		}
		// sync/atomic takes 64 bits at such places alone, on 32-bit processors too.
		if f.Type.Kind() == reflect.Uint64 && f.Offset%8 != 0 {
			return fmt.Errorf(
				"%s.%s is at byte %d: 64 bits that are read at once must lie at a multiple of 8", t, f.Name, f.Offset)
		}
	}
	if index != len(c.Members) {
		return fmt.Errorf("the C type has %d fields, %s has %d", len(c.Members), t, index)
	}
	return nil
}
