package contract

const (
	// filesBesides are open files that a node needs besides those of the load.
	filesBesides = 64
	// filesOfHost are open files of a host, with room for those of its dials.
	filesOfHost = 4
)

// ClientFiles are the open files that a client with a number of hosts needs, as crates/contract counts them.
func (p *Parameters) ClientFiles(hosts int) uint64 {
	switch p.Workload {
	case "relayStress":
		return uint64(hosts) + filesBesides
	case "messages":
		return filesOfHost*uint64(hosts)*uint64(p.ServersOfPeer()) + filesBesides
	default:
		return filesOfHost * uint64(hosts)
	}
}

// ServerFiles are the open files that a server needs: for the hosts of a source behind a relay, or for one
// that peers dial.
func (p *Parameters) ServerFiles(source *Source) uint64 {
	switch {
	case source != nil:
		// A listener, and a connection with the relay.
		return p.ClientFiles(2 * source.Peers)
	case p.Workload == "echo":
		return p.ClientFiles(p.Hosts(1))
	default:
		return p.ClientFiles(1)
	}
}

// RelayFiles are the open files that a relay needs.
func (p *Parameters) RelayFiles() uint64 {
	if p.Workload != "relayStress" {
		return filesBesides
	}
	return uint64(p.Sinks) + uint64(p.Sources) + filesBesides
}
