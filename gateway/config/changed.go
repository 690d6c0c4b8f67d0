package config

import (
	"reflect"
	"slices"
)

// Changed lists the keys in which two configurations differ, in the order of Keys. Of several networks it compares what
// is the same for all of them, or two networks. A secret that another file's text gives has changed too, unless
// gatewayd reads that file again by itself, as store.password_file.
func Changed(a, b *Config) []string {
	var keys []string
	other := b.settings()
	for i, s := range a.settings() {
		if !reflect.DeepEqual(s.target, other[i].target) {
			keys = append(keys, s.key)
		}
	}
	const atSentinels = "store.sentinel_password_file"
	if a.Store.Sentinels.Password != b.Store.Sentinels.Password && !slices.Contains(keys, atSentinels) {
		keys = append(keys, atSentinels)
	}
	return keys
}
