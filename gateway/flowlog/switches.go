package flowlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/gateway/shared"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// formerTable is the name that the tables of all LANs had in former versions.
const formerTable = guard.Prefix + "flows"

// table is a LAN's table with the rule by which the kernel tracks connections, which it does only for rules that ask
// about them. It changes no packet.
func table(lan string) nftables.Table {
	return nftables.Table{
		Family: nftables.IPv4, Name: formerTable + "-" + strings.TrimPrefix(guard.Table(lan), guard.Prefix)}
}

// kind begins the names by which gateways of a namespace share settings.
const kind = "flows."

func isShared(name string) bool { return strings.HasPrefix(name, kind) }

// wantedSettings are what the log needs: counters and times of connections, and events also of those that begin while
// nobody listens, as after a crash: with 2 the kernel never reports their ends.
var wantedSettings = map[string]string{
	"nf_conntrack_acct": "1", "nf_conntrack_timestamp": "1", "nf_conntrack_events": "1"}

// settings is the folder of the present thread's network namespace.
const settings = "/proc/sys/net/netfilter"

// formerSettings are the kernel's settings before the log changed them, as its note file has them. They mean nothing
// after a reboot or in another network namespace.
type formerSettings struct {
	Boot, Space string
	Settings    map[string]string
}

// track has the kernel track and count connections for the gateway of a LAN, and records its former settings in the
// note first. Calling it again has no effect. If the note is damaged, it logs which settings will not be restored.
func track(note, lan string, log *slog.Logger) error {
	if err := addTable(lan); err != nil {
		return err
	}
	former, err := shared.Need(lan, sharedNames()...)
	if err != nil {
		return err
	}
	before, err := recall(note)
	if errors.Is(err, errDamaged) {
		if err = dropUnreadable(note, err); err != nil {
			log.Warn("the kernel's settings for connections cannot be restored when the flow log ends", "err", err)
			err = nil
		}
	}
	if err != nil {
		return err
	}
	due, noted := map[string]string{}, len(before.Settings)
	for key, value := range wantedSettings {
		now, err := read(key)
		if err != nil {
			return err
		}
		if now != value {
			due[key] = now
		} else if now, changed := former[kind+key]; changed { // by another gateway
			if _, found := before.Settings[key]; !found {
				before.Settings[key] = now
			}
		}
	}
	return turn(note, before, due, len(before.Settings) > noted)
}

// turn notes the former values of settings, and others' if there are some, and sets the settings as the log needs them.
func turn(note string, before formerSettings, due map[string]string, others bool) error {
	if len(due) == 0 && !others {
		return nil
	}
	former := map[string]string{}
	for key, now := range due {
		if former[kind+key] = now; before.Settings[key] == "" {
			before.Settings[key] = now
		}
	}
	err := statefile.Replace(note, func(w io.Writer) error { return json.NewEncoder(w).Encode(before) })
	if err != nil {
		return fmt.Errorf("noting the kernel's settings for connections: %w", err)
	}
	if err := shared.Note(former); err != nil {
		return err
	}
	for key := range due {
		if err := write(key, wantedSettings[key]); err != nil {
			return err
		}
	}
	return nil
}

func sharedNames() (names []string) {
	for key := range wantedSettings {
		names = append(names, kind+key)
	}
	return names
}

// Undo restores the kernel's settings from before the log of a LAN's gateway, also after a crash, but those that other
// gateways need. note is the path Config.NotePath. Where there is nothing to restore, it does nothing.
func Undo(note, lan string) error {
	for _, t := range []nftables.Table{table(lan), {Family: nftables.IPv4, Name: formerTable}} {
		if found, err := nftables.TableExists(t); err != nil {
			return err
		} else if found {
			if err := change(func(b *nftables.Batch) { b.DeleteTable(t) }); err != nil {
				return err
			}
		}
	}
	return shared.Leave(lan, isShared, func(left shared.Left) error {
		before, unreadable := recall(note)
		for name, value := range left.Former {
			if before.Settings == nil {
				before.Settings = map[string]string{}
			}
			before.Settings[strings.TrimPrefix(name, kind)] = value
		}
		for key, value := range before.Settings {
			if now, err := read(key); err != nil || now != wantedSettings[key] || left.Needed[kind+key] {
				continue // gone, changed by others since, or needed
			}
			if err := write(key, value); err != nil {
				return err
			}
		}
		if unreadable != nil {
			return dropUnreadable(note, unreadable)
		}
		return removeNote(note)
	})
}

func removeNote(note string) error {
	if err := os.Remove(note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting the kernel's settings for connections: %w", err)
	}
	return nil
}

// errDamaged is returned of a note that is not what the log writes.
var errDamaged = errors.New("not what gatewayd writes")

// dropUnreadable removes a note that cannot be read, for a reason, and returns which settings stay as the log needs
// them. There is no error where none does. Events are left out: 2 is the kernel's own value too.
func dropUnreadable(note string, reason error) error {
	var stay []string
	for _, key := range []string{"nf_conntrack_acct", "nf_conntrack_timestamp"} {
		if now, err := read(key); err == nil && now == wantedSettings[key] {
			stay = append(stay, "net.netfilter."+key)
		}
	}
	var err error
	if errors.Is(reason, errDamaged) {
		err = removeNote(note)
	}
	if len(stay) > 0 {
		err = errors.Join(fmt.Errorf("%w: %s stay 1, whatever they were before: if nothing else needs them, sysctl -w %s=0",
			reason, strings.Join(stay, " and "), strings.Join(stay, "=0 ")), err)
	}
	return err
}

// track has the kernel track connections, and notes the rule that does.
func (l *Log) track() error {
	err := track(l.cfg.NotePath(), l.cfg.Interface, l.cfg.Log)
	if err == nil {
		_, l.rule, err = rule(l.cfg.Interface, 0)
	}
	return err
}

// keepTracking restores the kernel's rule after other programs have flushed it. If the gateway turns out to be
// detached, it removes that rule again.
func (l *Log) keepTracking() {
	if l.cfg.IsDetached != nil && l.cfg.IsDetached() {
		if err := Undo(l.cfg.NotePath(), l.cfg.Interface); err != nil && l.logDue() {
			l.cfg.Log.Error("restoring the kernel's settings for connections after detach", "err", err)
		}
		return
	}
	generation, current, err := rule(l.cfg.Interface, l.ruleAt)
	if err == nil && (generation == l.ruleAt || current == l.rule) {
		l.ruleAt = generation
		return
	}
	if err == nil {
		if err = l.track(); err == nil {
			l.cfg.Log.Warn("others removed the flow log's rule or changed it, and it is there again; flows that began "+
				"meanwhile may be missing", "table", table(l.cfg.Interface).Name)
			l.mu.Lock()
			l.stats.Restored++
			l.mu.Unlock()
		}
	}
	if err != nil && l.logDue() {
		l.cfg.Log.Error("keeping the kernel tracking connections for the flow log", "err", err)
	}
}

// rule sums the table's rules up, as they are in a generation of all rules, unless that is one which is known.
func rule(lan string, known uint32) (generation uint32, sum [32]byte, err error) {
	c, err := nftables.Dial()
	if err != nil {
		return 0, sum, err
	}
	defer c.Close()
	if generation, err = c.Generation(); err == nil && generation != known {
		sum, err = c.Digest(table(lan))
	}
	return generation, sum, err
}

func addTable(lan string) error {
	t := table(lan)
	return change(func(b *nftables.Batch) {
		b.DeleteTable(t)
		b.AddTable(t)
		b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: 0})
		b.AddRule(t, "forward", nftables.State(0))
	})
}

func change(fill func(*nftables.Batch)) error {
	c, err := nftables.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	var b nftables.Batch
	fill(&b)
	return c.Commit(&b)
}

// recall reads the note. One of another boot or namespace is none, and so is a damaged one, with errDamaged.
func recall(note string) (formerSettings, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	space, err2 := os.Readlink("/proc/thread-self/ns/net")
	if err := errors.Join(err, err2); err != nil {
		return formerSettings{}, fmt.Errorf("identifying the network namespace: %w", err)
	}
	here := formerSettings{Boot: strings.TrimSpace(string(boot)), Space: space}
	b, err := os.ReadFile(note)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return formerSettings{}, fmt.Errorf("reading the kernel's former settings for connections: %w", err)
	}
	var before formerSettings
	damage := json.Unmarshal(b, &before)
	if damage == nil && before.Boot == here.Boot && before.Space == here.Space {
		here.Settings = before.Settings
	}
	if here.Settings == nil {
		here.Settings = map[string]string{}
	}
	if err == nil && damage != nil {
		return here, fmt.Errorf("reading the kernel's former settings for connections in %s: %w", note, errDamaged)
	}
	return here, nil
}

func read(key string) (string, error) {
	b, err := os.ReadFile(filepath.Join(settings, key))
	if err != nil {
		return "", fmt.Errorf(
			"reading a setting for connections (the kernel needs CONFIG_NF_CONNTRACK with EVENTS and TIMESTAMP): %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func write(key, value string) error {
	if err := os.WriteFile(filepath.Join(settings, key), []byte(value), 0); err != nil {
		return fmt.Errorf("setting net.netfilter.%s to %s: %w", key, value, err)
	}
	return nil
}
