package control

import "sync"

// CountPreparations returns a function that returns how many requests needed OpenAPI or health checks.
func (s *Server) CountPreparations() func() int {
	n, next := 0, s.prepare
	var mu sync.Mutex
	s.prepare = func() {
		mu.Lock()
		defer mu.Unlock()
		next()
		n++
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}
