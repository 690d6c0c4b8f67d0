// Limits of sessions, and the profiles of limits that RADIUS servers name.

package config

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath/kinds"
	"github.com/gateweigh/gateweigh/internal/strict"
)

// Limits are the limits of sessions whose login has none. Zero: no limit. An IdleTimeout of DefaultIdle is for logins
// at the portal only.
type Limits struct {
	SessionTimeout, IdleTimeout    time.Duration
	UpRate, DownRate               uint64 // bits of IP packets a second
	UpQuota, DownQuota, TotalQuota uint64 // bytes of a session
	SessionsPerUser                int    // at once
	// Connections are those of a client at once. NoConnections: only logins that have a limit are limited.
	Connections int
}

// NoConnections is a number of connections that does not limit, though logins may (Limits.CountsConnections).
const NoConnections = -1

// CountsConnections reports whether a client's connections may have a limit: one of the configuration, or where that
// says "none" one of a login.
func (c *Config) CountsConnections() bool {
	return c.Limits.Connections != 0 || slices.ContainsFunc(c.Profiles, func(p Profile) bool { return p.Connections != 0 })
}

// maxConnections is more than any client has.
const maxConnections = 1_000_000

// connectionsOrNone reads a number of connections; "none" is NoConnections.
func connectionsOrNone(v any) (int, error) {
	if v == "none" {
		return NoConnections, nil
	}
	n, err := strict.Integer(1, maxConnections)(v)
	if err != nil {
		err = fmt.Errorf(`%w; or "none"`, err)
	}
	return n, err
}

// checkConnections checks that the kernel sees the connections that it is to count.
func (k *checker) checkConnections() {
	if !k.CountsConnections() {
		return
	}
	key := "limits.connections"
	if k.Limits.Connections == 0 {
		key = "limits.profile.connections"
	}
	traits := kinds.TraitsOf(k.Datapath.Kind)
	switch {
	case k.Datapath.Forward == ForwardRedirect && traits.UsesKey("forward"):
		k.report(key, `datapath.forward = "redirect" has packets pass by the kernel's table of connections: use "auto"`)
	case k.Datapath.Fast && traits.FastUntracked:
		k.report(key, "datapath.fast redirects packets past the kernel's table of connections: use datapath.fast = false")
	}
}

// Profile is limits with a name. A server gives them to a session by Filter-Id. A limit of zero is none of the profile.
type Profile struct {
	Name string
	Limits
}

// limitSettings are the keys of [limits] and [[limits.profile]].
func (c *Config) limitSettings() []setting {
	l := &c.Limits
	return append([]setting{
		keyAt("limits.session_timeout", &l.SessionTimeout, duration(minute, 365*day)),
		keyAt("limits.idle_timeout", &l.IdleTimeout, durationOrNone(minute, 365*day)),
		keyAt("limits.up_rate", &l.UpRate, rate),
		keyAt("limits.down_rate", &l.DownRate, rate),
		keyAt("limits.up_quota", &l.UpQuota, size),
		keyAt("limits.down_quota", &l.DownQuota, size),
		keyAt("limits.total_quota", &l.TotalQuota, size),
		keyAt("limits.sessions_per_user", &l.SessionsPerUser, strict.Integer(1, 1_000_000)),
		keyAt("limits.connections", &l.Connections, connectionsOrNone),
	}, c.profileSettings()...)
}

func (c *Config) profileSettings() []setting {
	all := &c.Profiles
	return []setting{
		column("limits.profile.name", all, line(100), func(p *Profile, v string) { p.Name = v }),
		column("limits.profile.session_timeout", all, duration(minute, 365*day),
			func(p *Profile, v time.Duration) { p.SessionTimeout = v }),
		column("limits.profile.idle_timeout", all, duration(minute, 365*day),
			func(p *Profile, v time.Duration) { p.IdleTimeout = v }),
		column("limits.profile.up_rate", all, rate, func(p *Profile, v uint64) { p.UpRate = v }),
		column("limits.profile.down_rate", all, rate, func(p *Profile, v uint64) { p.DownRate = v }),
		column("limits.profile.up_quota", all, size, func(p *Profile, v uint64) { p.UpQuota = v }),
		column("limits.profile.down_quota", all, size, func(p *Profile, v uint64) { p.DownQuota = v }),
		column("limits.profile.total_quota", all, size, func(p *Profile, v uint64) { p.TotalQuota = v }),
		column("limits.profile.sessions_per_user", all, strict.Integer(1, 1_000_000),
			func(p *Profile, v int) { p.SessionsPerUser = v }),
		column("limits.profile.connections", all, strict.Integer(1, maxConnections),
			func(p *Profile, v int) { p.Connections = v }),
	}
}

// checkProfiles checks that servers can name each profile.
func (k *checker) checkProfiles() {
	const table, key = "limits.profile", "limits.profile.name"
	used := map[string]int{}
	for i := range max(len(k.Profiles), k.rows[table]) {
		row := fmt.Sprintf("#%d", i+1)
		line := cmp.Or(k.lines[key+row], k.lines[table+row])
		switch {
		case k.lines[key+row] == 0:
			k.reportAt(line, key, "missing: the name by which a server gives the profile (Filter-Id)")
		case i < len(k.Profiles) && used[k.Profiles[i].Name] > 0:
			k.reportAt(line, key, "%q is on line %d already", k.Profiles[i].Name, used[k.Profiles[i].Name])
		case i < len(k.Profiles) && k.Profiles[i].Name != "":
			used[k.Profiles[i].Name] = line
		}
	}
	if k.rows[table] > 0 && !k.Auth.Has(MethodRADIUS) && !k.Devices.RADIUS && !k.UsesProfiles() &&
		k.Click.Profile == "" {
		k.reportAt(k.lines[table+"#1"], table, "%s: RADIUS servers, oidc.profile and oidc.profile_claim name profiles: "+
			"no provider does, and auth.methods does not have %q", noEffect, MethodRADIUS)
	}
}
