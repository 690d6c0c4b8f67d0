package gateway

// pairTranslation warns of outside addresses that stay with a machine when the other gateway of the pair takes over:
// clients' connections end then.
func (s *survey) pairTranslation() {
	p := s.Pair
	if p.Site == "" || !s.NAT.Enabled() {
		return
	}
	if s.NAT.Masquerade {
		s.addFinding(Warning, "%s: each gateway of the pair has its own first address at %s, so clients' connections end at "+
			"a takeover: set pair.wan_address, and that address in nat.source", s.LineOf("nat.masquerade"), s.WAN.Interface)
		return
	}
	for _, a := range s.outsideAddresses() {
		for _, r := range s.NAT.Source {
			if r.Contains(a.Addr()) && a.Addr() != p.WANAddress.Addr() {
				s.addFinding(Warning, "%s: %s is this machine's at %s, so clients' connections end when the other gateway of the "+
					"pair takes over: use pair.wan_address", s.LineOf("nat.source"), a.Addr(), s.WAN.Interface)
			}
		}
	}
}
