// Package forwarding switches the kernel's forwarding of IPv4 packets on for single interfaces, and off again where it
// switched it on.
//
// The kernel forwards a packet if the interface that it arrived at forwards (net.ipv4.conf.NAME.forwarding). The switch
// for all interfaces, net.ipv4.ip_forward, would overwrite the administrator's settings of other interfaces, each time
// that it is changed, and make the machine a router between those too. It also ends the acceptance of ICMP redirects,
// by which a neighbour could change the routes, so this package ends that at its interfaces.
package forwarding

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gateweigh/gateweigh/gateway/shared"
)

// Switch is the switch of one gateway.
type Switch struct {
	// Note is a file that records former settings while forwarding is switched on. It is of no meaning after a reboot, or
	// in another network namespace.
	NotePath string
	// LAN is the gateway's, by which others of the namespace know that it needs what they share.
	LAN string
}

// change is a setting that was changed, and its former value.
type change struct {
	dev              string
	index            int // of the interface: a later one of the same name has other settings
	key              string
	before           string
	machineForwarded bool // the machine forwarded then, and the interface was excepted
}

// On switches forwarding on for exactly these interfaces, and off for others that an earlier call switched it on for,
// unless other gateways need it there. Interfaces that forward already are left alone. Calling it again has no effect.
func (s Switch) On(interfaces ...string) error {
	made, err := s.read()
	if err != nil {
		return err
	}
	var kept, others []change
	for _, c := range made {
		if slices.Contains(interfaces, c.dev) {
			kept = append(kept, c)
		} else {
			others = append(others, c)
		}
	}
	left := func(name string) bool {
		return slices.ContainsFunc(others, func(c change) bool { return c.setting() == name })
	}
	if len(others) > 0 {
		if err := s.release(others, left); err != nil {
			return err
		}
	}
	due, known, err := s.need(interfaces)
	if err != nil {
		return err
	}
	if all := merge(kept, append(due, known...)); len(due)+len(others) > 0 || len(all) > len(kept) {
		if err := s.write(all); err != nil { // otherwise as noted, and a full disk keeps no gateway from starting again
			return err
		}
	}
	return turn(due)
}

// need records that the gateway needs interfaces to forward. It returns the changes that are due, and those that other
// gateways have made.
func (s Switch) need(interfaces []string) (due, known []change, err error) {
	var names []string
	for _, name := range interfaces {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return nil, nil, fmt.Errorf("interface %s: %w", name, err)
		}
		for _, key := range order {
			names = append(names, change{index: dev.Index, key: key}.setting())
		}
	}
	former, err := shared.Need(s.LAN, names...)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(former)) {
		if c, ok := changeOf(name, former[name]); ok {
			known = append(known, c)
		}
	}
	for _, name := range interfaces {
		todo, err := needed(name)
		if err != nil {
			return nil, nil, err
		}
		due = append(due, todo...)
	}
	return due, known, nil
}

// turn makes changes, and has other gateways know of them before.
func turn(due []change) error {
	if len(due) == 0 {
		return nil
	}
	former := map[string]string{}
	for _, c := range due {
		former[c.setting()] = c.value()
	}
	if err := shared.Note(former); err != nil {
		return err
	}
	for _, c := range due {
		if err := set(c.dev, c.key, wantedValues[c.key]); err != nil {
			return unwritable(c.dev, c.key, err)
		}
	}
	return nil
}

// Off restores what On changed, except what other gateways need, and where the administrator has switched forwarding on
// for the whole machine since. Without an On it has no effect.
func (s Switch) Off() error {
	made, err := s.read()
	if err != nil {
		return err
	}
	if len(made) > 0 {
		s.replaceNote(made, restoring) // a daemon that runs only misses why; a full disk keeps nothing on
	}
	if err := s.release(made, func(name string) bool { return strings.HasPrefix(name, kind) }); err != nil {
		return err
	}
	if len(made) == 0 {
		return nil // another namespace's note stays, and one without meaning too
	}
	return s.write(nil)
}

// release restores changes that no other gateway needs, those of gateways included that left earlier.
func (s Switch) release(made []change, match func(name string) bool) error {
	return shared.Leave(s.LAN, match, func(left shared.Left) error {
		var due []change
		for _, c := range made {
			if _, recorded := left.Former[c.setting()]; !recorded && !left.Needed[c.setting()] {
				due = append(due, c)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(left.Former)) {
			if c, ok := changeOf(name, left.Former[name]); ok {
				due = append(due, c)
			}
		}
		return restore(due)
	})
}

// kind begins the names of settings that gateways share.
const kind = "forwarding."

// setting is the name by which gateways share the setting.
func (c change) setting() string { return fmt.Sprintf("%s%d.%s", kind, c.index, c.key) }

// whole ends the value of a setting that was changed while the whole machine forwarded.
const whole = "-excepted"

// value is the former value as gateways share it.
func (c change) value() string {
	if c.machineForwarded {
		return c.before + whole
	}
	return c.before
}

// changeOf is the change of a shared setting; false: there is no such interface any more.
func changeOf(name, value string) (c change, ok bool) {
	number, key, _ := strings.Cut(strings.TrimPrefix(name, kind), ".")
	index, err := strconv.Atoi(number)
	if err != nil || wantedValues[key] == "" {
		return c, false
	}
	dev, err := net.InterfaceByIndex(index)
	if err != nil {
		return c, false
	}
	before, excepted := strings.CutSuffix(value, whole)
	return change{dev.Name, index, key, before, excepted}, true
}

// restoring is a note's last line while Off restores.
const restoring = "ending"

// HasNote reports whether something that On changed is to be restored, and Off has not begun to.
func (s Switch) HasNote() (bool, error) {
	made, err := s.read()
	if err != nil || len(made) == 0 {
		return false, err
	}
	text, err := os.ReadFile(s.NotePath)
	return err == nil && !strings.HasSuffix(string(text), restoring), nil
}

// Forwards reports whether the kernel forwards packets that arrive at an interface.
func Forwards(name string) (bool, error) {
	on, err := get(name, forwards)
	return on == "1", err
}

// Writable returns the error with which switching forwarding on at an interface would fail for this process.
func Writable(name string) error {
	if err := syscall.Access(path(name, forwards), 2); err != nil { // W_OK
		return unwritable(name, forwards, err)
	}
	return nil
}

func unwritable(name, key string, err error) error {
	return fmt.Errorf(
		"switching forwarding on at %s: %w: if settings are read-only here, as in a container, do it outside: echo %s >%s",
		name, err, wantedValues[key], path(name, key))
}

// Machine reports whether net.ipv4.ip_forward is on.
func Machine() (bool, error) { return Forwards("all") }

const (
	forwards  = "forwarding"
	redirects = "accept_redirects"
)

// wantedValues are the values of an interface that forwards, in the order of order.
var (
	wantedValues = map[string]string{redirects: "0", forwards: "1"}
	order        = []string{redirects, forwards}
)

// needed lists the changes that have an interface forward.
func needed(name string) ([]change, error) {
	enabled, err := Forwards(name)
	if err != nil || enabled {
		return nil, err
	}
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	machine, err := Machine()
	if err != nil {
		return nil, err
	}
	var all []change
	for _, key := range order {
		before, err := get(name, key)
		if err != nil {
			return nil, err
		}
		if before != wantedValues[key] {
			all = append(all, change{name, dev.Index, key, before, machine})
		}
	}
	return all, nil
}

// merge adds changes to those of earlier calls, which know the first values.
func merge(earlier, later []change) []change {
	for _, c := range later {
		same := func(e change) bool { return e.dev == c.dev && e.index == c.index && e.key == c.key }
		if !slices.ContainsFunc(earlier, same) {
			earlier = append(earlier, c)
		}
	}
	return earlier
}

// restore undoes changes in reverse order, except those that the machine's switch has overwritten.
func restore(made []change) error {
	if len(made) == 0 {
		return nil
	}
	all, err := Machine()
	if err != nil {
		return err
	}
	for _, c := range slices.Backward(made) {
		if all && !c.machineForwarded {
			continue
		}
		if err := set(c.dev, c.key, c.before); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("switching forwarding off at %s: %w", c.dev, err)
		}
	}
	return nil
}

func path(dev, key string) string { return filepath.Join("/proc/sys/net/ipv4/conf", dev, key) }

func get(dev, key string) (string, error) {
	value, err := os.ReadFile(path(dev, key))
	if err != nil {
		return "", fmt.Errorf("looking whether %s forwards: %w", dev, err)
	}
	return strings.TrimSpace(string(value)), nil
}

func set(dev, key, value string) error {
	f, err := os.OpenFile(path(dev, key), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// bootAndNamespace identifies this boot of the machine and this network namespace.
func bootAndNamespace() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading which boot of the machine this is: %w", err)
	}
	var ns syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return "", fmt.Errorf("reading which network namespace this is: %w", err)
	}
	return fmt.Sprintf("boot %s namespace %d", strings.TrimSpace(string(boot)), ns.Ino), nil
}

// read returns the noted changes. A note of another boot or namespace counts as none, and settings of interfaces that
// are gone went with them.
func (s Switch) read() ([]change, error) {
	text, err := os.ReadFile(s.NotePath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading where gatewayd switched forwarding on: %w", err)
	}
	here, err := bootAndNamespace()
	if err != nil {
		return nil, err
	}
	head, rest, _ := strings.Cut(string(text), "\n")
	if head != here {
		return nil, nil
	}
	var made []change
	for line := range strings.Lines(rest) {
		var c change
		if _, err := fmt.Sscan(line, &c.dev, &c.index, &c.key, &c.before, &c.machineForwarded); err != nil ||
			wantedValues[c.key] == "" {
			continue
		}
		if dev, err := net.InterfaceByName(c.dev); err == nil && dev.Index == c.index {
			made = append(made, c)
		}
	}
	return made, nil
}

// write notes changes before they are made; none: it removes the note.
func (s Switch) write(made []change) error {
	doing := "noting where gatewayd switches forwarding on"
	if len(made) == 0 {
		if err := os.Remove(s.NotePath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", doing, err)
		}
		return nil
	}
	if err := s.replaceNote(made, ""); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// replaceNote replaces the note.
func (s Switch) replaceNote(made []change, last string) error {
	here, err := bootAndNamespace()
	if err != nil {
		return err
	}
	text := here + "\n"
	for _, c := range made {
		text += fmt.Sprintln(c.dev, c.index, c.key, c.before, c.machineForwarded)
	}
	fresh := s.NotePath + ".new"
	if err := os.WriteFile(fresh, []byte(text+last), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, s.NotePath)
}
