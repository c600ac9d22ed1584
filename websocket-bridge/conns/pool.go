package conns

import (
	"container/list"
	"net"

	"github.com/clusterpass/clusterpass/shared/limits"
)

// pool finds the source with the most connections in constant time. The zero value is empty.
type pool struct {
	open     map[net.Conn]*list.Element
	bySource map[limits.Source]*list.List       // of net.Conn, the oldest first; none is empty
	bySize   map[int]map[limits.Source]struct{} // sources by their number of connections; none is empty
	most     int                                // the greatest key of bySize; 0 if the pool is empty
	// spare is an empty element of bySize for the next size. Each request removes its connection and adds it again, which
	// would otherwise allocate.
	spare map[limits.Source]struct{}
}

func (p *pool) add(c net.Conn, source limits.Source) {
	if p.open == nil {
		p.open, p.bySource = map[net.Conn]*list.Element{}, map[limits.Source]*list.List{}
		p.bySize = map[int]map[limits.Source]struct{}{}
	}
	own := p.bySource[source]
	if own == nil {
		own = list.New()
		p.bySource[source] = own
	}
	p.open[c] = own.PushBack(c)
	p.resized(source, own.Len()-1, own.Len())
}

func (p *pool) remove(c net.Conn, source limits.Source) {
	element, ok := p.open[c]
	if !ok {
		return
	}
	delete(p.open, c)
	own := p.bySource[source]
	own.Remove(element)
	p.resized(source, own.Len()+1, own.Len())
	if own.Len() == 0 {
		delete(p.bySource, source)
	}
}

func (p *pool) removeOldest(source limits.Source) net.Conn {
	oldest := p.bySource[source].Front().Value.(net.Conn)
	p.remove(oldest, source)
	return oldest
}

func (p *pool) largest() limits.Source {
	for source := range p.bySize[p.most] {
		return source
	}
	return limits.Source{}
}

func (p *pool) resized(source limits.Source, before, after int) {
	if sources := p.bySize[before]; sources != nil {
		if delete(sources, source); len(sources) == 0 {
			delete(p.bySize, before)
			p.spare = sources
		}
	}
	if after > 0 {
		if p.bySize[after] == nil {
			p.bySize[after] = p.newSources()
		}
		p.bySize[after][source] = struct{}{}
	}
	if after > p.most || before == p.most && p.bySize[before] == nil {
		p.most = after
	}
}

func (p *pool) newSources() map[limits.Source]struct{} {
	spare := p.spare
	if p.spare = nil; spare == nil {
		spare = map[limits.Source]struct{}{}
	}
	return spare
}
