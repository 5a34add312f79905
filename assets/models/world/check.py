"""The recurrence and its gradient against plain torch in f64."""
import torch, train
torch.manual_seed(0); B, T, D, N, H = 2, 37, 128, 64, 2
xs = [torch.randn(B, T, D) * .5 for _ in range(6)]; xs[1] = torch.sigmoid(xs[1]) * .45 + .55
k = torch.nn.functional.normalize(torch.randn(B, T, H, N), dim=-1).view(B, T, D); al = torch.rand(B, T, D); xs[4], xs[5] = -k, k * al
reset = torch.zeros(B, T, dtype=torch.int32); reset[0, 0] = reset[0, 11] = reset[0, 16] = reset[1, 5] = reset[1, 32] = 1
g = torch.randn(B, T, D)
def plain(r, w, k, v, a, b):
    r, w, k, v, a, b = (x.view(B, T, H, N) for x in (r, w, k, v, a, b)); S = torch.zeros(B, H, N, N, dtype=r.dtype); out = []
    for t in range(T):
        S = S * (1 - reset[:, t]).view(B, 1, 1, 1); sa = (S @ a[:, t, :, :, None])[..., 0]
        S = S * w[:, t, :, None] + sa[..., None] * b[:, t, :, None] + v[:, t, :, :, None] * k[:, t, :, None]; out.append((S @ r[:, t, :, :, None])[..., 0])
    return torch.stack(out, 1).view(B, T, D)
p = [x.double().requires_grad_() for x in xs]; y = plain(*p); y.backward(g.double())
q = [x.clone().requires_grad_() for x in xs]; z = train.Wkv.apply(*q, reset); z.backward(g)
print('y', (y - z).abs().max().item(), y.abs().max().item())
for n, u, v in zip('rwkvab', p, q): print(n, (u.grad - v.grad).abs().max().item(), u.grad.abs().max().item())
