<?php

declare(strict_types=1);

namespace Oplog;

/** Sends each operation as a datagram. Nothing confirms that it arrives. */
final class UdpDelivery implements Delivery
{
    private const MAX_DATAGRAM_BYTES = 65_507; // over IPv4

    /** @var resource */
    private $socket;
    private string $to;

    /** Look up the host, once. Throw RefusedException if it is unknown. */
    public function __construct(Address $to)
    {
        $isIpv6 = str_starts_with($to->host, '[');
        $ip = $isIpv6 ? $to->host
            : @gethostbynamel($to->host)[0] ?? throw new RefusedException("the host $to->host is not known");
        $this->to = "$ip:$to->port";
        // Not connected: a connected socket fails at a send if the previous datagram found no agent.
        $any = $isIpv6 ? 'udp://[::]:0' : 'udp://0.0.0.0:0';
        $this->socket = @stream_socket_server($any, $code, $message, STREAM_SERVER_BIND)
            ?: throw new RefusedException("no socket: $message");
    }

    public function send(string $label, string $json): bool
    {
        if (strlen($json) > self::MAX_DATAGRAM_BYTES) {
            throw new InvalidOperationException(
                'it has ' . strlen($json) . ' bytes, more than a datagram holds: send it over HTTP'
            );
        }
        if (@stream_socket_sendto($this->socket, $json, 0, $this->to) !== strlen($json)) {
            throw new InvalidOperationException(Text::lastError());
        }
        return false;
    }

    public function flush(Stop $stop, float $grace): void
    {
    }

    public function waiting(): int
    {
        return 0;
    }
}
