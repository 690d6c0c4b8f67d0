// Package forwarding switches the kernel's forwarding of IPv4 packets on for single interfaces, and off again where it
// switched it on.
//
// The kernel forwards a packet if forwarding is on at the interface that the packet arrived at
// (net.ipv4.conf.NAME.forwarding). The setting for all interfaces, net.ipv4.ip_forward, would overwrite the
// administrator's settings of other interfaces, and make the machine a router between those too. That setting also
// stops the kernel from accepting ICMP redirects, by which a neighbour could change its routes. So this package stops
// that at its interfaces too (accept_redirects).
//
// Several gateways in a network namespace may need the same interface. Package shared records who needs what, and has
// the last of them restore the setting.
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

// Switch switches forwarding on and off for one gateway.
type Switch struct {
	// NotePath is a file (the note) that records former settings while forwarding is switched on. The note means nothing
	// after a reboot, or in another network namespace.
	NotePath string
	// LAN is the gateway's LAN interface, which identifies the gateway in the records that gateways share.
	LAN string
}

// change is a setting that was changed, and its former value.
type change struct {
	dev              string
	index            int // of the interface, because a later interface of the same name has its own settings
	key              string
	before           string
	machineForwarded bool // net.ipv4.ip_forward was on when this was changed, and the interface was an exception
}

// On switches forwarding on for these interfaces. It switches it off for others that an earlier call switched it on
// for, unless other gateways need it there. It leaves interfaces alone that forward already. A second call has no
// effect.
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
		// Without a change nothing is written, so that a gateway can start again although the disk is full.
		if err := s.write(all); err != nil {
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

// turn makes the changes that are due. It first records them for other gateways, so that a kill in between loses
// nothing.
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

// Off restores what On changed, except settings that other gateways need, and settings that the administrator has
// overwritten by switching forwarding on for the whole machine. Without an On before it has no effect.
func (s Switch) Off() error {
	made, err := s.read()
	if err != nil {
		return err
	}
	if len(made) > 0 {
		s.replaceNote(made, restoring) // an error, such as of a full disk, must not keep forwarding on
	}
	if err := s.release(made, func(name string) bool { return strings.HasPrefix(name, kind) }); err != nil {
		return err
	}
	if len(made) == 0 {
		return nil // a note may exist all the same: another namespace's, which must stay
	}
	return s.write(nil)
}

// release restores those changes that no other gateway needs. It also restores changes of gateways that have left
// before while this one still needed them.
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

// setting returns the name of the setting in the records that gateways share.
func (c change) setting() string { return fmt.Sprintf("%s%d.%s", kind, c.index, c.key) }

// whole ends the value of a setting that was changed while the whole machine forwarded.
const whole = "-excepted"

// value returns the former value in the form that gateways share.
func (c change) value() string {
	if c.machineForwarded {
		return c.before + whole
	}
	return c.before
}

// changeOf returns the change that a shared record describes; false where the interface does not exist any more.
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

// HasNote reports whether On has changed something that Off has not begun to restore.
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

// wantedValues are the values of an interface's settings while it forwards; order is the order in which they are set.
var (
	wantedValues = map[string]string{redirects: "0", forwards: "1"}
	order        = []string{redirects, forwards}
)

// needed lists the changes that make an interface forward; none where it forwards already.
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

// merge adds later changes to earlier ones. Of two changes of one setting it keeps the earlier one, which has the value
// that the administrator had set.
func merge(earlier, later []change) []change {
	for _, c := range later {
		same := func(e change) bool { return e.dev == c.dev && e.index == c.index && e.key == c.key }
		if !slices.ContainsFunc(earlier, same) {
			earlier = append(earlier, c)
		}
	}
	return earlier
}

// restore undoes changes in reverse order, except those that net.ipv4.ip_forward has overwritten since.
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

// read returns the changes in the note. It ignores a note of another boot or network namespace, and changes of
// interfaces that do not exist any more.
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

// write writes the note before changes are made; without changes it removes the note.
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

// replaceNote replaces the note's file in one step. last is a last line, or empty.
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
