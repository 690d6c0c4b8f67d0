package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// collector makes metrics from a Status at each scrape. It has no series for single clients, so the cost of a scrape
// does not depend on the number of clients. With the data path ebpf, a scrape takes 4 ms of CPU for the 131,072
// addresses of a /15.
type collector struct{ status func() Status }

var _ prometheus.Collector = collector{}

// Descriptions of the metrics. Label values come from the daemon only.
var (
	infoDesc      = desc("info", "Always 1; what runs, and between which interfaces.", "version", "datapath", "lan", "wan")
	sinceDesc     = desc("start_time_seconds", "When the daemon started, in Unix time.")
	clientsDesc   = desc("clients", "Clients by state.", "state")
	addressesDesc = desc("addresses", "Addresses clients can be given: in the pools or reserved, or all of the LAN.")
	leasesDesc    = desc("dhcp_leases", "Leases in use.")
	outboxDesc    = desc("accounting_outbox", "Accounting events no server has confirmed yet.")
	asideDesc     = desc(
		"accounting_aside", "Accounting events set aside: no server confirms them, and servers confirm others.")
	serverDesc = desc("radius_server_up", "1: the RADIUS server answered last, or was not asked yet; 0: it did not.",
		"server", "purpose")
	storeUpDesc      = desc("store_up", "1: the store that several gateways share answers; 0: it is away.")
	storeWaitingDesc = desc("store_waiting_changes", "Changes that are not in the store, at least.")
	storeRefusedDesc = desc("store_refused_total", "Records and messages in the store that were not used, because of "+
		"their signature.")
	storeBehindDesc = desc("store_behind_seconds", "How long the oldest of them waits.")

	unkeptDesc    = desc("sessions_unkept", "1 while sessions cannot be written to the disk, otherwise 0.")
	addrs6Desc    = desc("ipv6_addresses", "IPv6 addresses of clients.")
	contestsDesc  = desc("ipv6_address_contests", "IPv6 addresses that another client claims, whose owner is asked for.")
	leases6Desc   = desc("dhcp6_leases", "Leases of DHCPv6 in use.", "kind")
	preferredDesc = desc("delegated_prefix_preferred_until_seconds",
		"When clients begin no more connections with a delegated prefix, in Unix time.", "prefix")
	validDesc = desc(
		"delegated_prefix_valid_until_seconds", "When a delegated prefix is no longer valid, in Unix time.", "prefix")
	bytesDesc   = desc("forwarded_bytes_total", "Bytes of IP packets forwarded; up is from clients.", "direction")
	forwardDesc = desc("forwarded_packets_total", "Packets forwarded; up is from clients.", "direction")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("gatewayd_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		infoDesc, sinceDesc, clientsDesc, addressesDesc, leasesDesc, outboxDesc, asideDesc, serverDesc, unkeptDesc,
		storeUpDesc, storeWaitingDesc, storeBehindDesc, storeRefusedDesc,
		addrs6Desc, contestsDesc, leases6Desc, preferredDesc, validDesc,
		bytesDesc, forwardDesc,
	} {
		ch <- d
	}
	for _, f := range Families {
		ch <- f.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	send := sendTo(ch)
	send(infoDesc, prometheus.GaugeValue, 1, s.Version, s.Datapath, s.LAN, s.WAN)
	send(sinceDesc, prometheus.GaugeValue, float64(s.Since.UnixMilli())/1000)
	send(addressesDesc, prometheus.GaugeValue, float64(s.Addresses))
	send(leasesDesc, prometheus.GaugeValue, float64(s.Leases))
	send(outboxDesc, prometheus.GaugeValue, float64(s.Outbox))
	send(asideDesc, prometheus.GaugeValue, float64(s.Aside))
	collectServers(s.Servers, send)
	unkept := 0.0
	if s.Unkept != "" {
		unkept = 1
	}
	send(unkeptDesc, prometheus.GaugeValue, unkept)
	// States without a client are exported too: alerts need the 0.
	for _, state := range States {
		send(clientsDesc, prometheus.GaugeValue, float64(s.Sessions[state]), string(state))
	}
	if s.IPv6 != nil {
		s.IPv6.collect(send)
	}
	s.Store.collect(send)
	send(bytesDesc, prometheus.CounterValue, float64(s.Traffic.UpBytes), "up")
	send(bytesDesc, prometheus.CounterValue, float64(s.Traffic.DownBytes), "down")
	send(forwardDesc, prometheus.CounterValue, float64(s.Traffic.UpPackets), "up")
	send(forwardDesc, prometheus.CounterValue, float64(s.Traffic.DownPackets), "down")
	collectFamilies(&s, send)
}

// collectFamilies sends all counters by word.
func collectFamilies(s *Status, send sender) {
	for _, f := range Families {
		counts := f.counters(s)
		for _, word := range slices.Sorted(maps.Keys(counts)) {
			send(f.desc, prometheus.CounterValue, float64(counts[word]), word)
		}
	}
}

// sendTo returns a sender to a channel.
func sendTo(ch chan<- prometheus.Metric) sender {
	return func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		m, err := prometheus.NewConstMetric(d, kind, value, labels...)
		if err != nil {
			m = prometheus.NewInvalidMetric(d, err)
		}
		ch <- m
	}
}

// networksCollector makes the metrics of a daemon. With several networks each has its own, with its name as a label.
type networksCollector struct{ status func() Status }

var _ prometheus.Collector = networksCollector{}

// Describe implements prometheus.Collector. It describes nothing, because networks come and go.
func (networksCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c networksCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	if len(s.Networks) == 0 {
		collector{func() Status { return s }}.Collect(ch)
	}
	if len(s.Networks) > 0 { // the admin page and the store are of no network
		s.Store.collect(sendTo(ch))
		collectFamilies(&Status{Admin: s.Admin}, sendTo(ch))
	}
	for _, n := range s.Networks {
		one := collector{func() Status { return n }}
		prometheus.WrapCollectorWith(prometheus.Labels{"network": n.Network}, one).Collect(ch)
	}
}

// sender sends a metric.
type sender func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string)

// collectServers sends the metrics of RADIUS servers.
func collectServers(servers []Server, send sender) {
	up := map[[2]string]float64{} // two servers may have one port for accounting
	for _, r := range servers {
		n := 0.
		if r.Up {
			n = 1
		}
		server := [2]string{r.Server, r.Purpose}
		up[server] = max(up[server], n)
	}
	for server, n := range up {
		send(serverDesc, prometheus.GaugeValue, n, server[0], server[1])
	}
}

// collect sends the metrics of what clients have of IPv6.
func (v *IPv6) collect(send sender) {
	send(addrs6Desc, prometheus.GaugeValue, float64(v.Addresses))
	send(contestsDesc, prometheus.GaugeValue, float64(v.Contests))
	for _, kind := range slices.Sorted(maps.Keys(v.Leases)) {
		send(leases6Desc, prometheus.GaugeValue, float64(v.Leases[kind]), kind)
	}
	for _, p := range v.Delegated {
		send(preferredDesc, prometheus.GaugeValue, float64(p.PreferredUntil.Unix()), p.Prefix.String())
		send(validDesc, prometheus.GaugeValue, float64(p.ValidUntil.Unix()), p.Prefix.String())
	}
}

// collect sends the metrics of a store; nil: there is none.
func (v *Store) collect(send sender) {
	if v == nil {
		return
	}
	up := 0.
	if v.Up {
		up = 1
	}
	send(storeUpDesc, prometheus.GaugeValue, up)
	send(storeWaitingDesc, prometheus.GaugeValue, float64(v.Waiting))
	send(storeBehindDesc, prometheus.GaugeValue, float64(v.BehindMS)/1000)
	send(storeRefusedDesc, prometheus.CounterValue, float64(v.Refused))
}

// Metrics answers GET /metrics with the metrics of a Status, of the Go runtime and of the process.
func Metrics(status func() Status) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(networksCollector{status}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	scrape := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4, Timeout: requestTimeout,
	})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrape)
	return mux
}

// ServeMetrics serves Metrics over TCP until ctx ends. It calls ready with the address once it listens.
func ServeMetrics(ctx context.Context, listen netip.AddrPort, status func() Status, ready func(net.Addr)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen.String())
	if err != nil {
		return fmt.Errorf("listening for Prometheus (metrics.listen): %w", err)
	}
	srv := &http.Server{
		Handler:           Metrics(status),
		ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: 2 * requestTimeout,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 8 << 10,
		ErrorLog:       slog.NewLogLogger(slog.Default().Handler(), slog.LevelError),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	ready(listener.Addr())
	err = srv.Serve(&limitedListener{Listener: listener, free: make(chan struct{}, maxConnections)})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving metrics: %w", err)
}
