package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// carrierTimeout is how long an interface may take until it has a carrier, after both ends of its cable were set up.
// Two ports agree on a speed within three seconds; some switches take longer.
const carrierTimeout = 20 * time.Second

// AwaitLinks waits until all the named interfaces have a carrier. An error names one that has none.
func (*Agent) AwaitLinks(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, carrierTimeout)
	defer cancel()
	for _, name := range names {
		for {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return fmt.Errorf("looking for %s: %w", name, err)
			}
			if link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s has no carrier %s after it was set up: is its cable in, and the other end up?", name,
					carrierTimeout)
			case <-time.After(5 * time.Millisecond): // polling needs less code than netlink's notices
			}
		}
	}
	return nil
}
