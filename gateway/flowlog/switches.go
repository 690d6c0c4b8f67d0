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
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/gateway/shared"
	"github.com/gateweigh/gateweigh/gateway/statefile"
)

// commonTable is the table's name in former versions, where all LANs had the same table.
const commonTable = guard.Prefix + "flows"

// table returns the nftables table of a LAN for a family of addresses. Its rule matches the state of connections: the
// kernel tracks connections of a family only while some rule needs it. The rule changes no packet.
func table(family nftables.Family, lan string) nftables.Table {
	return nftables.Table{Family: family, Name: commonTable + "-" + strings.TrimPrefix(guard.Table(lan), guard.Prefix)}
}

// families returns the families of addresses that clients have.
func (c Config) families() []nftables.Family {
	if c.Gateway6.IsValid() {
		return []nftables.Family{nftables.IPv4, nftables.IPv6}
	}
	return []nftables.Family{nftables.IPv4}
}

// settingPrefix begins the names of the settings that gateways in a network namespace share (package shared).
const settingPrefix = "flows."

func isShared(name string) bool { return strings.HasPrefix(name, settingPrefix) }

// wantedSettings has the kernel's settings that the log needs: it counts packets and times of connections, and reports
// all events. With nf_conntrack_events = 2 the kernel would not report the ends of connections that began while no
// program listened.
var wantedSettings = map[string]string{
	"nf_conntrack_acct": "1", "nf_conntrack_timestamp": "1", "nf_conntrack_events": "1"}

// settingsDir is the folder of the settings of the present network namespace.
const settingsDir = "/proc/sys/net/netfilter"

// formerSettings is the content of the note, a file (Config.NotePath): the kernel's settings before a gateway changed
// them. They are valid only for one boot and one network namespace.
type formerSettings struct {
	Boot, Space string
	Settings    map[string]string
}

// track makes the kernel track and count connections of some families for the gateway of a LAN. It first writes the
// kernel's former settings into the file note. Calling it again has no effect. If the note is damaged, it logs which
// settings Undo will not restore.
func track(note, lan string, families []nftables.Family, log *slog.Logger) error {
	if err := setTables(lan, families); err != nil {
		return err
	}
	changedByOthers, err := shared.Need(lan, sharedNames()...) // with their former values
	if err != nil {
		return err
	}
	noted, err := readNote(note)
	if errors.Is(err, errDamaged) {
		if err = dropUnreadable(note, err); err != nil {
			log.Warn("the kernel's settings for connections cannot be restored when the flow log ends", "err", err)
			err = nil
		}
	}
	if err != nil {
		return err
	}
	toChange, inNote := map[string]string{}, len(noted.Settings)
	for key, wanted := range wantedSettings {
		present, err := read(key)
		if err != nil {
			return err
		}
		if present != wanted {
			toChange[key] = present
		} else if former, changed := changedByOthers[settingPrefix+key]; changed {
			if _, found := noted.Settings[key]; !found {
				noted.Settings[key] = former
			}
		}
	}
	return changeSettings(note, noted, toChange, len(noted.Settings) > inNote)
}

// changeSettings writes noted into the file note and sets the settings in toChange, which has their present values, to
// those in wantedSettings. added reports that noted has settings which the file does not have yet.
func changeSettings(note string, noted formerSettings, toChange map[string]string, added bool) error {
	if len(toChange) == 0 && !added {
		return nil
	}
	former := map[string]string{}
	for key, present := range toChange {
		if former[settingPrefix+key] = present; noted.Settings[key] == "" {
			noted.Settings[key] = present
		}
	}
	err := statefile.Replace(note, func(w io.Writer) error { return json.NewEncoder(w).Encode(noted) })
	if err != nil {
		return fmt.Errorf("noting the kernel's settings for connections: %w", err)
	}
	if err := shared.Note(former); err != nil {
		return err
	}
	for key := range toChange {
		if err := write(key, wantedSettings[key]); err != nil {
			return err
		}
	}
	return nil
}

func sharedNames() (names []string) {
	for key := range wantedSettings {
		names = append(names, settingPrefix+key)
	}
	return names
}

// Undo removes the rule of a LAN's log and restores the kernel's settings from the note, also after a crash. It leaves
// settings that other gateways need. note is Config.NotePath. If there is nothing to restore, it does nothing.
func Undo(note, lan string) error {
	for _, t := range []nftables.Table{
		table(nftables.IPv4, lan), table(nftables.IPv6, lan), {Family: nftables.IPv4, Name: commonTable}} {
		if err := removeTable(t); err != nil {
			return err
		}
	}
	return shared.Leave(lan, isShared, func(left shared.Left) error {
		before, unreadable := readNote(note)
		for name, value := range left.Former {
			if before.Settings == nil {
				before.Settings = map[string]string{}
			}
			before.Settings[strings.TrimPrefix(name, settingPrefix)] = value
		}
		for key, value := range before.Settings {
			if now, err := read(key); err != nil || now != wantedSettings[key] || left.Needed[settingPrefix+key] {
				continue // the setting is gone, others have changed it since, or another gateway needs it
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

// errDamaged is the error of a note whose content the log has not written.
var errDamaged = errors.New("not what gatewayd writes")

// dropUnreadable removes a damaged note. Its error names the settings that keep the values which the log gave them; it
// returns nil if none does. reason is readNote's error. The error leaves nf_conntrack_events out: that the kernel goes
// on reporting events is usually harmless.
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

// track makes the kernel track connections, and remembers the digests of the rules.
func (l *Log) track() error {
	err := track(l.cfg.NotePath(), l.cfg.Interface, l.cfg.families(), l.cfg.Log)
	if err == nil {
		_, l.rules, err = ruleDigest(l.cfg.Interface, l.cfg.families(), 0)
	}
	return err
}

// keepTracking restores the log's rule after other programs have removed or changed it. If the gateway turns out to be
// detached, it removes the rule and restores the kernel's settings.
func (l *Log) keepTracking() {
	if l.cfg.IsDetached != nil && l.cfg.IsDetached() {
		if err := Undo(l.cfg.NotePath(), l.cfg.Interface); err != nil && l.logDue() {
			l.cfg.Log.Error("restoring the kernel's settings for connections after detach", "err", err)
		}
		return
	}
	generation, current, err := ruleDigest(l.cfg.Interface, l.cfg.families(), l.ruleGeneration)
	if err == nil && (generation == l.ruleGeneration || current == l.rules) {
		l.ruleGeneration = generation
		return
	}
	if err == nil {
		if err = l.track(); err == nil {
			l.cfg.Log.Warn("others removed the flow log's rule or changed it, and it is there again; flows that began "+
				"meanwhile may be missing", "table", table(nftables.IPv4, l.cfg.Interface).Name)
			l.mu.Lock()
			l.stats.Restored++
			l.mu.Unlock()
		}
	}
	if err != nil && l.logDue() {
		l.cfg.Log.Error("keeping the kernel tracking connections for the flow log", "err", err)
	}
}

// digests has a digest of the rules in a LAN's table of each family, by which a change of them shows.
type digests [2][32]byte

// ruleDigest returns the digests of the rules in a LAN's tables, and the generation of the whole ruleset. It leaves the
// digest out when the generation is the known one.
func ruleDigest(lan string, families []nftables.Family, known uint32) (generation uint32, sums digests, err error) {
	conn, err := nftables.Dial()
	if err != nil {
		return 0, sums, err
	}
	defer conn.Close()
	if generation, err = conn.Generation(); err != nil || generation == known {
		return generation, sums, err
	}
	for i, family := range families {
		if sums[i], err = conn.Digest(table(family, lan)); err != nil {
			return generation, sums, err
		}
	}
	return generation, sums, nil
}

// setTables adds a LAN's tables of these families, and removes a table of the other family that a former daemon left.
func setTables(lan string, families []nftables.Family) error {
	for _, family := range []nftables.Family{nftables.IPv4, nftables.IPv6} {
		set := removeTable
		if slices.Contains(families, family) {
			set = addTable
		}
		if err := set(table(family, lan)); err != nil {
			return err
		}
	}
	return nil
}

func addTable(t nftables.Table) error {
	return change(func(b *nftables.Batch) {
		b.DeleteTable(t)
		b.AddTable(t)
		b.AddChain(t, "forward", &nftables.Hook{Type: "filter", Number: unix.NF_INET_FORWARD, Priority: 0})
		b.AddRule(t, "forward", nftables.State(0))
	})
}

// removeTable removes a table. It is no error if there is none.
func removeTable(t nftables.Table) error {
	if found, err := nftables.TableExists(t); err != nil || !found {
		return err
	}
	return change(func(b *nftables.Batch) { b.DeleteTable(t) })
}

func change(fill func(*nftables.Batch)) error {
	conn, err := nftables.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	var b nftables.Batch
	fill(&b)
	return conn.Commit(&b)
}

// readNote reads the note. It returns no settings if the note is absent or of another boot or namespace, and errDamaged
// if the note is damaged.
func readNote(note string) (formerSettings, error) {
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
	b, err := os.ReadFile(filepath.Join(settingsDir, key))
	if err != nil {
		return "", fmt.Errorf(
			"reading a setting for connections (the kernel needs CONFIG_NF_CONNTRACK with EVENTS and TIMESTAMP): %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func write(key, value string) error {
	if err := os.WriteFile(filepath.Join(settingsDir, key), []byte(value), 0); err != nil {
		return fmt.Errorf("setting net.netfilter.%s to %s: %w", key, value, err)
	}
	return nil
}
