package datapathtest

// attackRow is a row of docs/reference/gatewayd-attacks.md: an attack, its effect, and the tests that show it, in
// Markdown. Tests whose names have the suffix OthersLease run where another program leases addresses.
type attackRow struct{ attack, outcome, tests string }

// attackSection is a section of that page. Its head is Markdown.
type attackSection struct {
	head string
	rows []attackRow
}

// documented are the sections of docs/reference/gatewayd-attacks.md, in the page's order. TestPageOfAttacks compares
// the page with them, and -update writes it.
var documented = []attackSection{
	{"## Past the login", []attackRow{
		{
			"HTTPS and QUIC before login",
			"refused at once, by RST and ICMP \"administratively prohibited\" (0.1 to 4 ms; five of each " +
				"over each path and mode, machine with other work), so a browser tries HTTP, which the portal " +
				"answers",
			"`HTTPSAndQUICBeforeLogin`, `TheRestIsRejected`; Chromium: `TestBrowserLogin` in gateway",
		},
		{
			"every protocol, fragments, VLANs, options, foreign and stolen addresses, frames with wrong " +
				"lengths, also 60,000 changed at random",
			"nothing leaves; broken frames not of admitted clients either",
			"`NothingOfStrangersLeaves`, `BrokenFramesGoNowhere`, `OddFramesOfStrangers`",
		},
		{
			"packets from the WAN for strangers, or with sources in the LAN",
			"nothing arrives",
			"`NothingReachesStrangers`",
		},
		{
			"UDP to port 67 of any address without a lease",
			"dropped, but to the gateway or broadcast",
			"`UDPToPort67WithoutLease`, `UDPToPort67WithoutLeaseOthersLease`",
		},
		{
			"refusals forged by a host of the WAN, also with the programs' own mark",
			"dropped",
			"`ForgedRefusals`",
		},
		{
			"a garden name or prefix with an address of the gateway's machine",
			"never in the garden, also addresses that it gets later",
			"`GardenWithTheGatewaysAddress`",
		},
		{
			"IPv6; multicast, broadcasts, router advertisements",
			"stay in the LAN, from admitted clients too",
			"`IPv6IsNoWayAround`, `OddFramesOfStrangers`",
		},
		{
			"a tunnel in DNS queries",
			"16 kbit/s for a MAC address, after the first 64 KiB",
			"`TestBudgetPerDevice`, `TestTunnelRate`, `TestBudgetsAreBounded` in dns",
		},
		{
			"routes by source, type of service, several next hops",
			"every packet takes the kernel's way",
			"`RoutesByMoreThanDestination`",
		},
		{
			"chains at the devices and IPsec policies, also loaded while no daemon runs",
			"every packet meets them; without a daemon after 3 s",
			"`HooksSeeEveryPacket`",
		},
		{
			"programs of others at tc",
			"those behind meet every packet; log and status name them. Those ahead are logged",
			"`TestForeignProgramsAfterOurs`, `TestForeignProgramBeforeOursIsLogged` in ebpf",
		},
		{
			"an uplink that fails",
			"strangers get the portal for HTTP to any address, and refusals",
			"`PortalWithoutUplink`",
		},
		{
			"a WAN without Ethernet (PPP, TUN)",
			"`ebpf` does not start, and says what to use",
			"`TestLinksWithoutEthernet` in ebpf",
		},
	}},
	{"## Opening the gateway", []attackRow{
		{
			"programs or pins taken off or replaced under the daemon",
			"attached again within half a second while [the guard](../gateway.md#the-guard) is shut; pins " +
				"within two",
			"`TestRemovedProgramsRestored`, `TestGuardClosedWithoutPrograms` in ebpf, `TestRemovedProgramsInStatus` in gateway",
		},
		{
			"a detach that fails halfway",
			"the LAN stays closed until one succeeds; a running daemon puts nothing back, and its status " +
				"is `detached`",
			"`TestDetachHalfway`, `TestDetachByForce` in gateway, `TestDaemonAfterPartialDetach`, " +
				"`TestDetachWithoutGuard` in ebpf",
		},
		{
			"rules flushed while no daemon runs, on a machine that forwards",
			"`ebpf` judges as before. **`nfqueue` lets everybody through, `tun` from the LAN to the WAN**, " +
				"until gatewayd or its guard runs",
			"`RulesFlushedWithoutDaemon`, `TestNoTrafficBeforeStart` in gateway",
		},
		{
			"packets at boot, before gatewayd starts",
			"dropped by `gatewayd guard`; gatewayd switches forwarding on last",
			"`TestNoTrafficBeforeStart`, `TestForwardingSwitch` in gateway, `TestSwitch` in forwarding",
		},
		{
			"forwarding switched off under the daemon",
			"on again, warned and counted",
			"`TestForwardingRestored` in gateway, `TestIPForwardSysctl` in forwarding",
		},
		{
			"a damaged state file",
			"set aside; clients that the new one does not have are shut out",
			"`TestDamagedStateIsSetAside` in gateway",
		},
		{
			"a daemon that was taken over",
			"has three or four capabilities, on all threads, and hands none on",
			"`TestCapabilities`, `TestCapabilitiesOfSystemdUnit` in `cmd/gatewayd`",
		},
		{
			"a full disk, a stopped daemon",
			"full: new logins and leases may fail, sessions end all the same; stopped: nobody new gets in. " +
				"With `ebpf` admitted clients continue; no restart is needed afterwards",
			"`TestFullDisk` in `cmd/gatewayd`, `TestSessionEndsOnFullDisk` in gateway/session, `FrozenClosedToStrangers`",
		},
		{
			"a second daemon with a folder of the first",
			"ends before it touches anything; `check-config` says so",
			"`TestStateFoldersInUse` in gateway",
		},
		{
			"a second gateway on an interface of almost the same name (`br-lan`, `br_lan`)",
			"a guard of its own",
			"`TestTablesOfTheirOwn` in `netfilter/guard`",
		},
		{
			"a start at once after `kill -9`",
			"waits a second for the end of that process",
			"`TestListenWaitsForEndingProcess` in control, `TestKilledAtAnyTime` in `cmd/gatewayd`",
		},
	}},
	{"## In another's name", []attackRow{
		{
			"ARP and ICMP redirects for addresses of clients, gateway or WAN router",
			"routes, neighbours and packets stay. Between clients of one switch, and for a host of the " +
				"WAN's own network that claims the next hop, it is out of the gateway's reach",
			"`ARPCannotBeForged`, `NeighboursAndRoutesCannotBePoisoned`",
		},
		{
			"ARP that says another MAC address than its frame",
			"dropped. `nfqueue` answers a probe for a free address to the MAC address that it says, within " +
				"the sender's budget",
			"`ARPCannotBeForged`, `FloodsOfAStranger`, `TestARP` in `datapath/compared/admission`",
		},
		{
			"DHCPRELEASE or DHCPDECLINE in a client's name",
			"the client is asked by ARP a second later; one that answers keeps lease and session " +
				"(`still-there`), and is not asked again for 30 s. One that sleeps loses them",
			"`TestForgedReleases` in gateway, `TestReleaseIsVerified` in dhcp",
		},
		{
			"a device with MAC and IP address of a logged-in client",
			"shares the session, but sees no user's name and logs nobody out without the browser's cookie " +
				"or the name",
			"`TestCopiedDevice`, `TestOtherBrowser` in portal",
		},
		{
			"a cookie from before the login, or of a former session",
			"worth nothing",
			"`TestNoCookieBeforeLogin` in portal",
		},
		{
			"frames with the gateway's MAC address as their sender, or a client's",
			"a switch sends that address's frames to the wrong port until the owner sends again: only port " +
				"security or client isolation prevents it",
			"none",
		},
		{
			"RADIUS answers forged or replayed, BlastRADIUS (CVE-2024-3596) among them, from another " +
				"address or port; accounting too",
			"dropped and counted; the server's own answer decides",
			"`TestForgeriesAreDropped`, `TestReplayedAnswers`, `TestAnswersFromElsewhereAreNotSeen`, " +
				"`TestForgedAccounting` in radius",
		},
		{
			"another site has a browser send the portal's forms, frames its pages, or resolves to it " +
				"(CSRF, clickjacking, DNS rebinding)",
			"forms need the portal's token, pages refuse frames, other Hosts are redirected",
			"`TestOtherSitesCannot`, `TestOtherSiteInBrowser`, `TestCapturedIsRedirected` in portal",
		},
		{
			"an OpenID provider's answer of another device, browser or login, or again; a provider's button on and on",
			"no login; after ten at once one each 5 s. At most 64 addresses are open for a device",
			"`TestProviderRefusals`, `TestProviderBudget` in portal; `TestForeignAnswers` in oidc; `TestBounds` in visit",
		},
		{
			"scripts, template code, line breaks in names, Host, targets, links",
			"shown as text, or refused; never in a header or log line of their own",
			"`TestLogin`, `TestOddRequests`, `TestLinksOfOthersAreNotShown`, `TestLogInjection`, " +
				"`TestInjection`, `FuzzRequest`, `FuzzOriginal` in weblink and portal",
		},
		{
			"the users' file given to another owner, or readable",
			"the daemon does not start; a running one keeps its accounts. Log, `status` and `check-config` " +
				"say what to change",
			"`TestChangesAreRead`, `TestOtherUsersFile`, `TestMistakesLoggedOnChange` in users, " +
				"`TestScripts` in `cmd/gatewayd`",
		},
		{
			"one account on many devices",
			"refused beyond `limits.sessions_per_user` or Port-Limit, also at the same moment",
			"`TestSessionsOfOneUser` in session, `TestTooManyDevices` in portal",
		},
		{
			"the time of an answer, to find out which names exist",
			"tells nothing, also amid a flood",
			"`TestAnswersDoNotTellNames`, `TestUnknownNamesCostTheSame` in users",
		},
	}},
	{"## Floods and exhaustion\n\n[Budgets](../gateway.md#budgets-before-login) bound every stranger.", []attackRow{
		{
			"HTTP, connections to garden and gateway, refused packets, DNS, pings, ARP and DHCP of one " +
				"stranger",
			"dropped beyond its budgets; others are served and keep their connections. A device that sends " +
				"with another's MAC address uses up that one's budget",
			"`FloodsOfAStranger`, `TestFloodOfOneMAC` in dhcp; `TestHTTPFloodOfOneStranger` (70,000 " +
				"connections), `TestRequestsOverflow` in ebpf",
		},
		{
			"a made-up MAC address in each message",
			"all new ones share one bound; clients that renew, and devices that were there before, do not",
			"`TestMadeUpSenders` in budget and ebpf",
		},
		{
			"garden connections that stay open, to fill the kernel's table",
			"some 28,000 of 262,144 entries at most for a MAC address",
			"`FloodsOfAStranger`, `TestGardenBudgetPerDevice` in `datapath/compared/admission`, " +
				"`TestLongTrackedConnectionBudget` in " +
				"ebpf",
		},
		{
			"a device with 66,000 MAC addresses leases the pool",
			"clients that are logged in renew; newcomers get none until the leases end, " +
				"`dhcp.preauth_lease` after its last request",
			"`TestStarvation` in dhcp",
		},
		{
			"more made-up devices than the kernel's neighbour table learns (1024), scans of the LAN, " +
				"senders that nobody leased",
			"clients have permanent entries, others take none. Scans from behind a third interface do make " +
				"entries",
			"`TestMadeUpDevices` in gateway, `TestMoreClientsThanKernelLimit` in `datapath/machine/neighbour`, " +
				"`NeighboursAreClients`, `MadeUpNeighboursOthersLease`, `ScanOfTheLAN`",
		},
		{
			"a lease for an address with a static entry of yours",
			"the entry stays, and is logged if it names another device",
			"`TestForeignStaticEntry` in `datapath/machine/neighbour`",
		},
		{
			"names whose servers never answer; names that are answered here, without end",
			"strangers share a sixteenth of the queries in progress; 2,000 messages at once and 500 a " +
				"second of a MAC address",
			"`TestUnansweredNamesStarveNobody`, `TestFloodOfLocalNames` in dns",
		},
		{
			"wrong passwords by the hundred, of many devices and names",
			"right passwords wait for one hash; [the order](../gateway.md#passwords)",
			"`TestGuessesDoNotDelayOthers`, `TestMadeUpNamesDelayNobody`, `TestQueueOrder`, " +
				"`TestReturningUsersDoNotWait` in users, `TestSourceOrderByName` in gateway",
		},
		{
			"logins until 1,024 wait, by clients that hang up",
			"the others are answered",
			"`TestDisplacedWhileHashed` in users",
		},
		{
			"half-open, silent and slow connections to the portal",
			"64 of a client, 8 while half of all are in use, 5 s for a request; half of the daemon's files " +
				"at most",
			"`TestHalfOpenConnections` in gateway, `TestSilentConnections` (10,000), `TestFilesForOthers`, " +
				"`TestConnectionsAreBounded`, `TestFullPortalTurnsAway`, `TestIdleConnectionsMakeRoom` in " +
				"portal, `TestSlowClients` in `cmd/gatewayd`",
		},
	}},
	{"With `dhcp.mode = \"external\"`:", []attackRow{
		{
			"one device claims many addresses, a server's, or another's at the same moment",
			"4 for a MAC address; an address has one owner; [who can " +
				"claim](../gateway.md#another-dhcp-server). A device that uses another's address first and " +
				"answers for it keeps its owner out while it stays, and once logged in for up to `dhcp.lease` " +
				"longer",
			"`TestClaimsOfAddresses` in gateway, `NewcomersAreTold`, `TestClaimsShareTheDisk`, " +
				"`TestClaimsAtTheSameTime` in session",
		},
		{
			"packets from one address after the other",
			"16 at once and 2 a second of a MAC address are reported",
			"`FloodsOfAStranger`",
		},
		{
			"a login at the moment in which the claim is removed",
			"keeps its session",
			"`TestForgetStrangersKeepsLogins` in session",
		},
		{
			"newcomers on a full disk",
			"one warning a minute, with their number",
			"`TestFailingClaimsDoNotFillTheLog` in gateway",
		},
	}},
}
