// The matrices of `lib/cooperative16`, 8 x 8: what Metal offers.
enable f16;
enable wgpu_cooperative_matrix;
const SIZE: u32 = 8u;
alias Left = coop_mat8x8<f16, A>;
alias Right = coop_mat8x8<f16, B>;
alias Sum = coop_mat8x8<f32, C>;
