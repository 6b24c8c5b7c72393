package realtime

// SetClientLimits sets how many clients an address and an account may have. Call it before the first client connects.
func (s *Realtime) SetClientLimits(address, account int) {
	s.registry.addressClients, s.registry.accountClients = address, account
}

// TopicCount returns the number of topics that are stored for a client.
func (s *Realtime) TopicCount(clientID string) int {
	c := s.registry.client(clientID)
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	return len(c.subscriptions)
}
