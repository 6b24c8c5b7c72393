package realtime

// HoldFewer bounds how many clients an address and an account may have, before there is any.
func (s *Realtime) HoldFewer(address, account int) {
	s.registry.addressClients, s.registry.accountClients = address, account
}

// Followed is how many topics of a client are kept.
func (s *Realtime) Followed(clientID string) int {
	c := s.registry.client(clientID)
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return len(c.follows)
}
