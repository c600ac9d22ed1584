package agents

import (
	"context"
	"net"
	"time"
)

// headStart is how long who is asked first may take to connect before the next one is asked, too.
const headStart = time.Second

// race asks n ways to one place, one after the other: the next when one has failed, or has not answered within headStart. The first
// connection is the answer; what others still make of it is closed. Without any, it returns why each has failed; nil for one that was not
// asked, since ctx has ended.
func race(ctx context.Context, n int, ask func(ctx context.Context, i int) (net.Conn, error)) (net.Conn, []error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what is not answered by then is given up
	type answer struct {
		i    int
		conn net.Conn
		err  error
	}
	answers := make(chan answer, n)
	errs := make([]error, n)
	asked, waiting := 0, 0
	next := func() {
		if asked == n || ctx.Err() != nil {
			return
		}
		i := asked
		asked++
		waiting++
		go func() {
			conn, err := ask(ctx, i)
			answers <- answer{i, conn, err}
		}()
	}
	tick := time.NewTicker(headStart)
	defer tick.Stop()
	for next(); waiting > 0; {
		select {
		case <-tick.C:
			next()
		case a := <-answers:
			waiting--
			if a.err == nil {
				go func() {
					for range waiting {
						if late := <-answers; late.err == nil {
							_ = late.conn.Close()
						}
					}
				}()
				return a.conn, nil
			}
			errs[a.i] = a.err
			next()
			tick.Reset(headStart)
		}
	}
	return nil, errs
}
