package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// carrierWithin is how long a cable may take after both its ends were set up: two ports agree on a speed within three
// seconds, and some switches take longer.
const carrierWithin = 20 * time.Second

// AwaitLinks waits until interfaces of the host have a carrier. An error says which have none.
func (*Agent) AwaitLinks(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, carrierWithin)
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
					carrierWithin)
			case <-time.After(5 * time.Millisecond): // the kernel tells, but a look is cheaper than to listen
			}
		}
	}
	return nil
}
